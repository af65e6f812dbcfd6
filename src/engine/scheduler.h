// Who runs next: the whole scheduling policy, and nothing about memory or arithmetic.
//
// Continuous batching with chunked prefill. Each step runs one row for every request that is generating, then up to
// `prefill_chunk` prompt tokens, oldest request first. Requests start in order of arrival. When a generating request
// needs a page and none is free, the youngest running request is preempted: its pages are saved, it goes back to the
// head of the queue, and it resumes where it stood (nothing is recomputed, so its text does not change). The oldest
// request can always run, because the cache holds at least one request of full length: nothing starves.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "decode/sampler.h"
#include "engine/batch_plan.h"
#include "engine/block_manager.h"
#include "engine/request.h"

namespace halfbyte {

struct SchedulerLimits {
  int64_t max_batch = 16;       // requests running at once
  int64_t prefill_chunk = 512;  // prompt tokens a step
};

// Thread-compatible: owned by the thread that steps the engine.
class Scheduler {
 public:
  // `blocks` must outlive the scheduler and hold at least one request of full length.
  Scheduler(const SchedulerLimits& limits, BlockManager& blocks);

  void add(std::unique_ptr<Request> request);
  // Removes the request wherever it is and gives it back; null when it is not here.
  std::unique_ptr<Request> remove(uint64_t id);

  // Adds to the tokens that the request takes in place of drawn ones; an unknown id is ignored.
  void force(uint64_t id, std::span<const int32_t> tokens);

  // What runs now. Valid until the next call.
  const BatchPlan& next();
  // Takes the tokens of the plan's sampling segments, in order: appends them, ends requests, frees pages. One event for
  // each token and for each request that failed.
  void accept(const BatchPlan& plan, std::span<const SampledToken> sampled, std::vector<TokenEvent>& events);

  // The plan could not be carried out: its requests end, each with an event that says why.
  void fail(const BatchPlan& plan, const Status& why, std::vector<TokenEvent>& events);

  int64_t running() const { return static_cast<int64_t>(running_.size()); }
  int64_t waiting() const { return static_cast<int64_t>(waiting_.size()); }
  uint64_t preemptions() const { return preemptions_; }

 private:
  void plan_decode_rows();
  void plan_prompt_rows();
  void admit(int64_t budget);
  bool resume(Request& request);
  // Makes room for one more token of running_[index]; preempts younger requests, at last itself. False: it was
  // preempted.
  bool make_room(size_t index);
  void preempt_youngest();
  int64_t add_prompt_segment(Request& request, int64_t budget);
  void add_segment(Request& request, RowRole role, int64_t rows);
  // Appends the drawn token, or the forced one that takes its place, and fills the event.
  static void take_token(Request& request, const SampledToken& drawn, TokenEvent& event);

  SchedulerLimits limits_;
  BlockManager& blocks_;
  std::deque<std::unique_ptr<Request>> waiting_;   // oldest first
  std::vector<std::unique_ptr<Request>> running_;  // oldest first; only the last can be within its prompt
  BatchPlan plan_;
  uint64_t preemptions_ = 0;
};

}  // namespace halfbyte
