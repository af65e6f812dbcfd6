// What other threads ask of the engine: the two things that cross threads are requests and cancellations.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

namespace halfbyte {

// Thread-safe.
class Inbox {
 public:
  explicit Inbox(int64_t max_waiting) : max_waiting_(max_waiting) {}

  // kResourceExhausted when as many requests wait as may.
  Status submit(std::unique_ptr<Request> request) {
    const std::lock_guard lock(mutex_);
    const int64_t waiting = waiting_ + static_cast<int64_t>(requests_.size());
    if (waiting >= max_waiting_)
      return resource_exhausted(std::to_string(waiting) + " requests are waiting, at most " +
                                std::to_string(max_waiting_) + " may; try again when some have finished");
    requests_.push_back(std::move(request));
    return {};
  }

  void cancel(uint64_t id) {
    const std::lock_guard lock(mutex_);
    cancellations_.push_back(id);
  }

  // Moves everything out, in order of arrival. `requests` and `cancellations` must be empty.
  void take(std::vector<std::unique_ptr<Request>>& requests, std::vector<uint64_t>& cancellations) {
    const std::lock_guard lock(mutex_);
    waiting_ += static_cast<int64_t>(requests_.size());
    requests.swap(requests_);
    cancellations.swap(cancellations_);
  }

  // How many requests the scheduler holds in its queue.
  void set_waiting(int64_t waiting) {
    const std::lock_guard lock(mutex_);
    waiting_ = waiting;
  }

  // Requests not yet taken, and those in the scheduler's queue.
  int64_t waiting() const {
    const std::lock_guard lock(mutex_);
    return waiting_ + static_cast<int64_t>(requests_.size());
  }

 private:
  const int64_t max_waiting_;
  mutable std::mutex mutex_;
  int64_t waiting_ = 0;
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<uint64_t> cancellations_;
};

}  // namespace halfbyte
