// What other threads ask of the engine: requests, cancellations, and tokens that a request must take.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

namespace halfbyte {

struct ForcedTokens {
  uint64_t request = 0;
  std::vector<int32_t> tokens;
};

// What waited in the inbox, in order of arrival.
struct InboxContents {
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<uint64_t> cancellations;
  std::vector<ForcedTokens> forced;

  void clear() {
    requests.clear();
    cancellations.clear();
    forced.clear();
  }
};

// Thread-safe.
class Inbox {
 public:
  explicit Inbox(int64_t max_waiting) : max_waiting_(max_waiting) {}

  // kResourceExhausted when as many requests wait as may.
  Status submit(std::unique_ptr<Request> request) {
    const std::lock_guard lock(mutex_);
    const int64_t waiting = waiting_ + static_cast<int64_t>(contents_.requests.size());
    if (waiting >= max_waiting_)
      return resource_exhausted(std::to_string(waiting) + " requests are waiting, at most " +
                                std::to_string(max_waiting_) + " may; try again when some have finished");
    contents_.requests.push_back(std::move(request));
    return {};
  }

  void cancel(uint64_t id) {
    const std::lock_guard lock(mutex_);
    contents_.cancellations.push_back(id);
  }

  void force(ForcedTokens forced) {
    const std::lock_guard lock(mutex_);
    contents_.forced.push_back(std::move(forced));
  }

  // Moves everything out. `contents` must be empty; its memory is kept for the next arrivals.
  void take(InboxContents& contents) {
    const std::lock_guard lock(mutex_);
    waiting_ += static_cast<int64_t>(contents_.requests.size());
    std::swap(contents, contents_);
  }

  // How many requests the scheduler holds in its queue.
  void set_waiting(int64_t waiting) {
    const std::lock_guard lock(mutex_);
    waiting_ = waiting;
  }

  // Requests not yet taken, and those in the scheduler's queue.
  int64_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_ + static_cast<int64_t>(contents_.requests.size());
  }

 private:
  const int64_t max_waiting_;
  mutable std::mutex mutex_;
  int64_t waiting_ = 0;
  InboxContents contents_;
};

}  // namespace halfbyte
