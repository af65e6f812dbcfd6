// Running ahead: while the host takes the tokens of one decode step, the next step of the same rows is on the device already,
// with tokens, positions and policies fed back there. Tokens are the same with and without it.
//
// What the next step will be is foreseen, not known: a request may end, be cancelled, set aside or given forced tokens, and
// others may join. If the plan that then comes runs rows that are on their way, at the positions and with the tokens that
// the device has fed back, their results are taken; else the pass is given up and the plan runs as if it had never been.
//
// A pass that was given up, or a row of it that nobody takes, has written a key and a value at the position behind the
// row's last known token, in a page that the row held when the pass began. That harms nobody:
// - Of its own sequence nobody reads that position before it is written again: attention reads up to its own row's
//   position, and a position's row writes it first. This holds after preemption, too: what is saved and restored are the
//   positions before it, and what was read along of that one is written anew.
// - A page belongs to one sequence. If it has been freed and given to another one since, that one's own writes were
//   asked for later, so they come later on the stream; so do pages that are restored, which go through the stream.
// - score() and prompt rows write only to pages of their own, later on the stream.
// A row that is not in the plan any more, and does not rest by its own rule, must not go on: its page may be another's when the
// pass after next runs. So a pass is followed by another one only while all of its rows are in the plan.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/batch_plan.h"
#include "engine/cuda_pass.h"

namespace halfbyte {

// Thread-compatible.
class RunAhead {
 public:
  RunAhead(CudaPass& pass, int64_t page_tokens, bool enabled)
      : pass_(pass), page_tokens_(page_tokens), enabled_(enabled) {}

  bool enabled() const { return enabled_; }
  // Whether these decode rows of a plan are all on their way, in this order, as the plan wants them.
  bool foresaw(std::span<const BatchSegment> rows) const;
  // Gives up what is on its way.
  void drop();

  // The rows of the pass that was begun with `ticket` and advances; a pass for the step behind it follows if it can be foreseen
  // (`alone`: the plan holds nothing beside the rows).
  Status begun(int ticket, std::span<const BatchSegment> rows, bool alone);
  // The rows that foresaw() said are on their way become the present pass; again one follows if it can.
  Status go_on(std::span<const BatchSegment> rows, bool alone);
  // Waits for the present pass and takes the tokens of its rows, in order.
  Status finish(std::span<cuda::Drawn> drawn);
  // Which row of the present pass the row of a plan is; rows ascend.
  size_t place_of(const BatchSegment& row, size_t from) const;

  uint64_t taken() const { return taken_; }    // passes that were there before the plan was
  uint64_t unused() const { return unused_; }  // and those that were given up

 private:
  // A row of the present pass and, once it is finished, what it drew: the token of the row that follows.
  struct Row {
    uint64_t request = 0;
    int64_t position = 0;
    int32_t token = -1;
  };
  Status follow(std::span<const BatchSegment> rows, bool alone);

  CudaPass& pass_;
  int64_t page_tokens_;
  bool enabled_;
  std::vector<Row> rows_;      // of the present pass
  std::vector<CudaRow> next_;  // scratch
  int present_ = -1, next_ticket_ = -1;
  uint64_t taken_ = 0, unused_ = 0;
};

}  // namespace halfbyte
