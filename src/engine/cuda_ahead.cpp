#include "engine/cuda_ahead.h"

#include <algorithm>

namespace halfbyte {

size_t RunAhead::place_of(const BatchSegment& row, size_t from) const {
  while (from < rows_.size() && rows_[from].request != row.request->id) ++from;
  return from;
}

// rows_ are of the pass before the one on its way.
bool RunAhead::foresaw(std::span<const BatchSegment> rows) const {
  if (next_ticket_ < 0 || rows.empty()) return false;
  size_t at = 0;
  for (const BatchSegment& segment : rows) {
    at = place_of(segment, at);
    if (at == rows_.size()) return false;
    const Row& row = rows_[at];
    const Request& request = *segment.request;
    if (segment.position != row.position + 1 || request.tokens[static_cast<size_t>(segment.position)] != row.token ||
        !pass_.table_covers(static_cast<int>(at), request.pages, segment.position))
      return false;
    ++at;
  }
  return true;
}

void RunAhead::drop() {
  if (next_ticket_ >= 0) ++unused_;
  next_ticket_ = -1;
}

Status RunAhead::begun(int ticket, std::span<const BatchSegment> rows, bool alone) {
  drop();
  present_ = ticket;
  rows_.clear();
  for (const BatchSegment& segment : rows) rows_.push_back({segment.request->id, segment.position, -1});
  return follow(rows, alone);
}

Status RunAhead::go_on(std::span<const BatchSegment> rows, bool alone) {
  ++taken_;
  present_ = next_ticket_;
  next_ticket_ = -1;
  for (Row& row : rows_) ++row.position;
  return follow(rows, alone);
}

Status RunAhead::follow(std::span<const BatchSegment> rows, bool alone) {
  if (!enabled_ || !alone || rows.size() != rows_.size()) return {};
  bool lasts = false;  // a row at least will be there
  next_.clear();
  for (const BatchSegment& segment : rows) {
    const Request& request = *segment.request;
    const int64_t position = segment.position + 1;
    const bool ends = position + 1 >= request.limit;  // the device lets it rest
    if (!request.forced.empty()) return {};
    if (!ends && position / page_tokens_ >= static_cast<int64_t>(request.pages.size())) return {};
    lasts = lasts || !ends;
    next_.push_back({0, static_cast<int32_t>(position), request.pages});
  }
  if (!lasts) return {};
  HB_ASSIGN(next_ticket_, pass_.begin_next(next_));
  return {};
}

Status RunAhead::finish(std::span<cuda::Drawn> drawn) {
  HB_TRY(pass_.finish(present_, drawn));
  for (size_t i = 0; i < rows_.size(); ++i) rows_[i].token = drawn[i].token;
  return {};
}

}  // namespace halfbyte
