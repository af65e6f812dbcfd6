// What one step runs. Made by the scheduler, carried out by a runner: the only thing the two share.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/request.h"
#include "kernels/api.h"

namespace halfbyte {

// Consecutive rows of one request: tokens [position, position + rows).
struct BatchSegment {
  Request* request = nullptr;
  RowRole role = RowRole::kDecode;
  int64_t position = 0;
  int64_t rows = 0;
  bool samples = false;  // the last row's logits give the next token
};

// A preempted request and the pages it held.
struct PageSave {
  Request* request = nullptr;
  BlockTable pages;
};

struct BatchPlan {
  // Carried out before the rows, saves first: a page may change hands within one plan.
  std::vector<PageSave> save;          // the pages' bytes go to request->saved_kv
  std::vector<Request*> restore;       // saved_kv goes to the request's (new) pages
  std::vector<BatchSegment> segments;  // decode rows first, then prompt rows; each oldest request first
  int64_t rows = 0;
  int64_t sampled = 0;  // segments that sample

  bool empty() const { return segments.empty(); }
  void clear() {
    save.clear();
    restore.clear();
    segments.clear();
    rows = sampled = 0;
  }
};

}  // namespace halfbyte
