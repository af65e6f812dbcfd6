#include "eval/grading_queue.h"

#include <algorithm>
#include <system_error>

namespace halfbyte {

GradingQueue::GradingQueue(int threads) {
  try {
    for (int i = 0; i < std::max(threads, 1); ++i)
      threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
  } catch (const std::system_error&) {  // fewer will do; add() says where there is none
  }
}

GradingQueue::~GradingQueue() {
  for (std::jthread& t : threads_) t.request_stop();
}

void GradingQueue::add(size_t index, Grade grade) {
  const std::scoped_lock lock(mutex_);
  ++open_;
  if (threads_.empty()) {
    done_.emplace_back(index, resource_exhausted("the system refuses a thread that grades answers"));
    return;
  }
  waiting_.emplace_back(index, std::move(grade));
  added_.notify_one();
}

size_t GradingQueue::open() const {
  const std::scoped_lock lock(mutex_);
  return open_;
}

std::vector<GradingQueue::Graded> GradingQueue::take() {
  const std::scoped_lock lock(mutex_);
  open_ -= done_.size();
  return std::exchange(done_, {});
}

void GradingQueue::wait(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  graded_.wait_for(lock, most, [&] { return !done_.empty(); });
}

void GradingQueue::work(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (added_.wait(lock, stop, [&] { return !waiting_.empty(); }) && !stop.stop_requested()) {
    const auto [index, grade] = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    Result<SampleResult> result = grade(stop);
    lock.lock();
    done_.emplace_back(index, std::move(result));
    graded_.notify_one();
  }
}

}  // namespace halfbyte
