#include "eval/grading_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <set>

namespace halfbyte {
namespace {

using namespace std::chrono_literals;

SampleResult named(const std::string& id) {
  SampleResult r;
  r.id = id;
  return r;
}

// All that come, until `count` are there.
std::set<std::string> taken(GradingQueue& queue, size_t count) {
  std::set<std::string> ids;
  while (ids.size() < count) {
    queue.wait(10s);
    for (const auto& [index, result] : queue.take())
      ids.insert(std::to_string(index) + (result.ok() ? result->id : result.status().message()));
  }
  return ids;
}

TEST(GradingQueue, ASlowGradingHoldsNoOtherUp) {
  GradingQueue queue(2);
  std::promise<void> go;
  queue.add(0, [&go](const std::stop_token&) -> Result<SampleResult> {
    go.get_future().wait();
    return named("slow");
  });
  for (size_t i = 1; i < 20; ++i)
    queue.add(i, [](const std::stop_token&) -> Result<SampleResult> { return named("quick"); });
  EXPECT_EQ(taken(queue, 19).size(), 19u);
  EXPECT_EQ(queue.open(), 1u);
  go.set_value();
  EXPECT_EQ(taken(queue, 1), std::set<std::string>{"0slow"});
  EXPECT_EQ(queue.open(), 0u);
}

TEST(GradingQueue, AnErrorComesOutAndNothingIsLostWithIt) {
  GradingQueue queue(1);
  for (size_t i = 0; i < 5; ++i) {
    queue.add(i, [i](const std::stop_token&) -> Result<SampleResult> {
      if (i == 2) return internal_error("no pipe");
      return named("graded");
    });
  }
  EXPECT_EQ(taken(queue, 5), (std::set<std::string>{"0graded", "1graded", "2no pipe", "3graded", "4graded"}));
  EXPECT_EQ(queue.open(), 0u);
}

TEST(GradingQueue, ItsEndStopsWhatRunsAndDropsWhatWaits) {
  std::atomic<int> ran{0};
  std::promise<void> started;
  {
    GradingQueue queue(1);
    queue.add(0, [&](const std::stop_token& stop) -> Result<SampleResult> {
      ++ran;
      started.set_value();
      while (!stop.stop_requested()) std::this_thread::yield();
      return cancelled("stopped");
    });
    queue.add(1, [&](const std::stop_token&) -> Result<SampleResult> {
      ++ran;
      return named("never");
    });
    started.get_future().wait();
  }
  EXPECT_EQ(ran, 1);
}

TEST(GradingQueue, WaitingEnds) {
  GradingQueue queue(1);
  queue.wait(1ms);
  EXPECT_TRUE(queue.take().empty());
}

}  // namespace
}  // namespace halfbyte
