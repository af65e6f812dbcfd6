// Grades finished samples on threads of its own: code that an answer holds may run for seconds, and the engine's thread must
// not wait for it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "base/result.h"
#include "eval/results.h"

namespace halfbyte {

// One thread adds and takes.
class GradingQueue {
 public:
  // Returns soon after a stop was asked for, with any status.
  using Grade = std::function<Result<SampleResult>(const std::stop_token& stop)>;
  using Graded = std::pair<size_t, Result<SampleResult>>;

  // So many threads, or as many as the system gives; with none every grading ends in an error.
  explicit GradingQueue(int threads);
  // Drops what waits, and asks what runs to stop.
  ~GradingQueue();
  GradingQueue(const GradingQueue&) = delete;
  GradingQueue& operator=(const GradingQueue&) = delete;

  // In order of arrival. `index` names the sample; nothing bounds what waits but the caller, by open().
  void add(size_t index, Grade grade);
  // Added and not taken yet.
  size_t open() const;
  // What has ended, in any order: a sample's error is its own, and no other's result is lost with it.
  std::vector<Graded> take();
  // Returns once there is something to take, and after `most` in any case.
  void wait(std::chrono::milliseconds most);

 private:
  void work(const std::stop_token& stop);

  mutable std::mutex mutex_;
  std::condition_variable_any added_, graded_;
  std::deque<std::pair<size_t, Grade>> waiting_;
  std::vector<Graded> done_;
  size_t open_ = 0;
  std::vector<std::jthread> threads_;  // last: they end before the rest is destroyed
};

}  // namespace halfbyte
