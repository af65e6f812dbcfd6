#include "base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>
#include <new>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include "base/cpu_topology.h"

namespace halfbyte {
namespace {

class ThreadPoolTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Threads, ThreadPoolTest, ::testing::Values(1, 2, 3, 8));

TEST_P(ThreadPoolTest, CoversEachIndexOnceAtEverySize) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (int64_t count : {0, 1, 2, 3, 7, 8, 9, 16, 63, 64, 65, 1000}) {
    for (int64_t grain : {1, 2, 16, 1000, 5000}) {
      std::vector<int> hits(count);  // plain ints: two writers of one index are a data race that TSan sees
      pool.parallel_for(count, grain, [&](int64_t begin, int64_t end, int thread) {
        EXPECT_EQ(begin % grain, 0);
        EXPECT_LT(begin, end);
        EXPECT_LE(end, count);
        EXPECT_GE(thread, 0);
        EXPECT_LT(thread, GetParam());
        for (int64_t i = begin; i < end; ++i) ++hits[i];
      });
      for (int64_t i = 0; i < count; ++i)
        ASSERT_EQ(hits[i], 1) << "count " << count << " grain " << grain << " index " << i;
    }
  }
}

// Memory may run out in a body: the caller hears of it, and the pool works on.
TEST_P(ThreadPoolTest, ExceptionsReachTheCaller) {
  ThreadPool pool(GetParam());
  for (int loop = 0; loop < 50; ++loop) {
    const auto body = [](int64_t begin, int64_t end, int) {
      if (begin <= 37 && 37 < end) throw std::bad_alloc();
    };
    EXPECT_THROW(pool.parallel_for(100, 1, body), std::bad_alloc);
    std::atomic<int64_t> sum{0};
    pool.parallel_for(100, 1, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
    ASSERT_EQ(sum, 100);
  }
}

TEST_P(ThreadPoolTest, ThreadNumbersAreExclusive) {
  ThreadPool pool(GetParam());
  std::vector<int64_t> scratch(GetParam());  // plain: two bodies with one thread number would race
  for (int loop = 0; loop < 200; ++loop) {
    pool.parallel_for(100, 1, [&](int64_t begin, int64_t end, int thread) { scratch[thread] += end - begin; });
  }
  EXPECT_EQ(std::accumulate(scratch.begin(), scratch.end(), int64_t{0}), 200 * 100);
}

TEST_P(ThreadPoolTest, WritesAreVisibleFromLoopToLoop) {
  ThreadPool pool(GetParam());
  constexpr int64_t kCount = 257;
  std::vector<int64_t> values(kCount, 0), next(kCount, 0);
  for (int64_t step = 0; step < 500; ++step) {
    // Each loop reads what others wrote in the loop before.
    pool.parallel_for(kCount, 1, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) next[i] = values[(i * 7 + 3) % kCount] + 1;
    });
    values.swap(next);
    for (int64_t v : values) ASSERT_EQ(v, step + 1);
  }
}

TEST_P(ThreadPoolTest, ManyShortLoopsWithPauses) {
  ThreadPool pool(GetParam());
  std::atomic<int64_t> sum{0};
  int64_t expected = 0;
  for (int loop = 0; loop < 2000; ++loop) {
    // Pauses of different length catch the workers spinning, falling asleep and asleep.
    if (loop % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(loop / 2));
    const int64_t count = loop % 17;
    pool.parallel_for(count, 1 + loop % 3, [&](int64_t begin, int64_t end, int) { sum += end - begin; });
    expected += count;
  }
  EXPECT_EQ(sum.load(), expected);
}

TEST_P(ThreadPoolTest, ASlowPieceDoesNotKeepTheOthersWaiting) {
  if (GetParam() == 1) return;  // nobody to take the other pieces
  ThreadPool pool(GetParam());
  // The piece that begins at 0 waits until every other piece is done: possible only if they are not bound to its
  // thread.
  std::atomic<int64_t> done{0};
  const int64_t count = 64;
  pool.parallel_for(count, 1, [&](int64_t begin, int64_t end, int) {
    if (begin == 0) {
      while (done.load() != count - end) std::this_thread::yield();
    } else {
      done += end - begin;
    }
  });
  EXPECT_LT(done.load(), count);
}

TEST(ThreadPool, PoolsMadeAndDestroyedWithoutWork) {
  for (int i = 0; i < 100; ++i) ThreadPool pool(1 + i % 5);
}

TEST(ThreadPool, TwoPoolsAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int c = 0; c < 2; ++c) {
    callers.emplace_back([&] {
      ThreadPool pool(3);
      for (int i = 0; i < 300; ++i) pool.parallel_for(50, 1, [&](int64_t b, int64_t e, int) { total += e - b; });
    });
  }
  for (auto& c : callers) c.join();
  EXPECT_EQ(total.load(), 2 * 300 * 50);
}

// Borders depend on the loop and the thread count alone (docs/threads.md). One loop of a fresh pool: it never runs alone.
TEST(ThreadPool, PiecesAreHalvesOfWhatIsLeftOfAShare) {
  ThreadPool pool(2);
  std::mutex mutex;
  std::map<int64_t, int64_t> pieces;
  pool.parallel_for(305, 1, [&](int64_t begin, int64_t end, int) {
    const std::lock_guard lock(mutex);
    pieces[begin] = end;
  });
  // Shares of 152 and 153 units, eight pieces each.
  const std::map<int64_t, int64_t> expected{{0, 76},    {76, 114},  {114, 133}, {133, 143}, {143, 148}, {148, 150},
                                            {150, 151}, {151, 152}, {152, 229}, {229, 267}, {267, 286}, {286, 296},
                                            {296, 301}, {301, 303}, {303, 304}, {304, 305}};
  EXPECT_EQ(pieces, expected);
}

TEST(ThreadPool, UsesItsThreads) {
  // Each thread holds its first piece until all three have one.
  ThreadPool pool(3);
  std::mutex mutex;
  std::set<std::thread::id> ids;
  pool.parallel_for(3, 1, [&](int64_t, int64_t, int) {
    {
      const std::lock_guard lock(mutex);
      ids.insert(std::this_thread::get_id());
    }
    while (true) {
      std::this_thread::yield();
      const std::lock_guard lock(mutex);
      if (ids.size() == 3) break;
    }
  });
  EXPECT_EQ(ids.size(), 3u);
}

// Threads that lose their CPU in the middle of a piece again and again: the caller stops asking them, and later asks again.
TEST(ThreadPool, RunsAloneForAWhileWhenOthersStall) {
  ThreadPool pool(2);
  std::atomic<bool> alone{false};
  using Clock = std::chrono::steady_clock;
  for (int loop = 0; loop < 1000 && !alone; ++loop) {
    std::atomic<bool> other{false};
    const Clock::time_point start = Clock::now();
    pool.parallel_for(2, 1, [&](int64_t begin, int64_t end, int thread) {
      if (end - begin == 2) alone = true;
      if (thread == 1) {
        other = true;
        // Many times what the caller has spent, however busy the machine is.
        std::this_thread::sleep_for(std::chrono::milliseconds(10) + 20 * (Clock::now() - start));
      }
      while (thread == 0 && end - begin == 1 && !other) std::this_thread::yield();
    });
  }
  EXPECT_TRUE(alone);
  std::atomic<bool> again{false};
  for (int loop = 0; loop < 100000 && !again; ++loop) {
    pool.parallel_for(2, 1, [&](int64_t begin, int64_t end, int) {
      if (end - begin == 1 && begin == 0) again = true;
    });
  }
  EXPECT_TRUE(again);
}

TEST(ThreadPool, DefaultThreadCountIsAtLeastOne) {
  EXPECT_GE(default_thread_count(), 1);
  EXPECT_LE(default_thread_count(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace halfbyte
