// A decode step allocates nothing but the vector of events it returns. Its own program, because it counts every
// allocation of the process.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "halfbyte/engine.h"
#include "support/tiny_synthetic.h"

namespace {
std::atomic<long> allocations{0};
}

// noinline: g++ would otherwise see malloc and free through them and warn of a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace halfbyte {
namespace {

// A thread makes its scratch for tiles (kernels/cpu/tile_scratch.h) when it first gets such work, which may be in any step: two
// buffers a thread of the pool, once. Everything else but a step's events is there before.
TEST(StepAllocations, ADecodeStepAllocatesItsEventsOnly) {
  constexpr int kThreads = 2, kScratchBuffers = 2;
  for (const char* plan : {"bf16", "w4a16", "w4a4", "w4a16,kv=nvfp4"}) {
    const auto model = testing::tiny_model("qwen3", plan);
    ASSERT_NE(model, nullptr);
    EngineOptions options;
    options.threads = kThreads;
    options.context = 64;
    options.kv_tokens = 4 * 64;
    auto engine = Engine::create(model, options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    for (int i = 0; i < 4; ++i) {
      GenerateRequest r;
      r.prompt = {1, 2, 3, static_cast<int32_t>(i)};
      r.max_tokens = 40;
      r.sampling.top_k = i == 1 ? 20 : 0;
      r.sampling.top_p = i == 2 ? 0.9f : 1.0f;
      r.sampling.frequency_penalty = i == 3 ? 0.5f : 0.0f;
      r.sampling.entropy = true;
      ASSERT_TRUE((*engine)->submit(r).ok());
    }
    for (int i = 0; i < 3; ++i) ASSERT_TRUE((*engine)->step().ok());
    long beyond_events = 0;
    for (int i = 0; i < 20; ++i) {
      const long before = allocations.load();
      const auto events = (*engine)->step();
      const long made = allocations.load() - before;
      ASSERT_TRUE(events.ok());
      ASSERT_EQ(events->size(), 4u);
      beyond_events += std::max(made - 1, 0L);
    }
    EXPECT_LE(beyond_events, kThreads * kScratchBuffers) << plan;
  }
}

TEST(StepAllocations, TheCounterCounts) {
  const long before = allocations.load();
  const std::vector<int> vector(static_cast<size_t>(before % 7 + 100));
  EXPECT_EQ(allocations.load() - before, 1) << vector.size();
}

}  // namespace
}  // namespace halfbyte
