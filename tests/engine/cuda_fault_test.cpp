// A kernel that faults takes the device's context with it: what runs ends with the reason, and so does what comes later. A
// program of its own, because the process cannot use the device afterwards. Skipped without a device.
#include <gtest/gtest.h>

#include "engine/cuda_memory.h"
#include "halfbyte/engine.h"
#include "kernels/cuda/ops.h"
#include "model/model_impl.h"
#include "support/cuda_device.h"
#include "support/cuda_model.h"

namespace halfbyte {
namespace {

GenerateRequest request() {
  GenerateRequest r;
  r.prompt = {1, 2, 3};
  r.max_tokens = 400;
  r.sampling.temperature = 0;
  return r;
}

// The events that end requests, within a few steps.
std::vector<TokenEvent> ends(Engine& engine) {
  std::vector<TokenEvent> out;
  for (int i = 0; i < 20 && engine.busy(); ++i) {
    const auto events = engine.step();
    EXPECT_TRUE(events.ok()) << events.status().message();
    if (!events.ok()) break;
    for (const TokenEvent& e : *events)
      if (e.finish != FinishReason::kNone) out.push_back(e);
  }
  return out;
}

TEST(CudaFault, EndsRequestsAndSaysSo) {
  HB_NEED_CUDA();
  const auto model = testing::cuda_model("llama", "w4a16");
  ASSERT_NE(model, nullptr);

  // More than the device has: before anything is uploaded.
  auto memory = cuda_memory();
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  memory->free_bytes = 1 << 20;
  const auto most = cuda_memory_beside_weights(
      *memory, cuda_model_shape(model->config(), model->plan(), model->impl().weights, memory->wgmma));
  ASSERT_FALSE(most.ok());
  EXPECT_NE(most.status().message().find("the model's weights take"), std::string::npos) << most.status().message();
  // Memory that runs out later names both numbers.
  const auto huge = cuda::DeviceBuffer::make(size_t{1} << 46);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(huge.status().message().find(" free of "), std::string::npos) << huge.status().message();

  EngineOptions options;
  options.device = "cuda";
  options.context = 1024;
  options.kv_tokens = 4096;
  auto engine = Engine::create(model, options);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  ASSERT_TRUE((*engine)->submit(request()).ok());
  ASSERT_TRUE((*engine)->submit(request()).ok());
  for (int i = 0; i < 30; ++i) ASSERT_TRUE((*engine)->step().ok());
  ASSERT_EQ((*engine)->metrics().running, 2);

  // A read from an address that nobody has, in the same context.
  ASSERT_TRUE(cuda::read_all(reinterpret_cast<const void*>(uintptr_t{16} << 40), 1 << 20, 8, {}).ok());
  const auto ended = ends(**engine);
  ASSERT_EQ(ended.size(), 2u);
  for (const TokenEvent& e : ended) {
    EXPECT_EQ(e.finish, FinishReason::kError);
    EXPECT_NE(e.error.find("CUDA device"), std::string::npos) << e.error;
  }
  EXPECT_EQ((*engine)->metrics().kv_tokens_used, 0) << "pages were lost";

  ASSERT_TRUE((*engine)->submit(request()).ok());
  const auto later = ends(**engine);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_NE(later[0].error.find("failed in an earlier step"), std::string::npos) << later[0].error;
  const auto score = (*engine)->score(std::vector<int32_t>{1, 2, 3});
  ASSERT_FALSE(score.ok());
  EXPECT_NE(score.status().message().find("failed in an earlier step"), std::string::npos) << score.status().message();
  const auto again = Engine::create(model, options);
  EXPECT_FALSE(again.ok());
}

}  // namespace
}  // namespace halfbyte
