#include "eval/grading_queue.h"

#include <algorithm>
#include <system_error>

namespace halfbyte {

GradingQueue::GradingQueue(int threads) {
  try {
    for (int i = 0; i < std::max(threads, 1); ++i)
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  } catch (const std::system_error&) {
    const std::scoped_lock lock(mutex_);
    if (threads_.empty()) error_ = resource_exhausted("the system refuses a thread that grades answers");
  }
}

GradingQueue::~GradingQueue() {
  for (std::jthread& t : threads_) t.request_stop();
}

void GradingQueue::add(size_t index, Grade grade) {
  const std::scoped_lock lock(mutex_);
  waiting_.emplace_back(index, std::move(grade));
  ++open_;
  added_.notify_one();
}

size_t GradingQueue::open() const {
  const std::scoped_lock lock(mutex_);
  return open_;
}

Result<std::vector<GradingQueue::Graded>> GradingQueue::take() {
  const std::scoped_lock lock(mutex_);
  HB_TRY(error_);
  open_ -= done_.size();
  return std::exchange(done_, {});
}

void GradingQueue::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  graded_.wait_for(lock, most, [&] { return !done_.empty() || !error_.ok(); });
}

void GradingQueue::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (added_.wait(lock, stop, [&] { return !waiting_.empty(); }) && !stop.stop_requested()) {
    const auto [index, grade] = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    Result<SampleResult> result = grade(stop);
    lock.lock();
    if (result.ok()) {
      done_.emplace_back(index, std::move(result).value());
    } else if (error_.ok()) {
      error_ = result.status();
    }
    graded_.notify_one();
  }
}

}  // namespace halfbyte
