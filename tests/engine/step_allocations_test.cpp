// A decode step allocates nothing but the vector of events it returns. Its own program, because it counts every
// allocation of the process.
#include <gtest/gtest.h>

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

TEST(StepAllocations, ADecodeStepAllocatesItsEventsOnly) {
  for (const char* plan : {"bf16", "w4a16", "w4a4", "w4a16,kv=nvfp4"}) {
    const auto model = testing::tiny_model("qwen3", plan);
    ASSERT_NE(model, nullptr);
    EngineOptions options;
    options.threads = 2;
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
    for (int i = 0; i < 20; ++i) {
      const long before = allocations.load();
      const auto events = (*engine)->step();
      const long made = allocations.load() - before;
      ASSERT_TRUE(events.ok());
      ASSERT_EQ(events->size(), 4u);
      EXPECT_LE(made, 1) << plan << ", step " << i;
    }
  }
}

TEST(StepAllocations, TheCounterCounts) {
  const long before = allocations.load();
  const std::vector<int> vector(static_cast<size_t>(before % 7 + 100));
  EXPECT_EQ(allocations.load() - before, 1) << vector.size();
}

}  // namespace
}  // namespace halfbyte
