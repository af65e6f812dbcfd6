// What `inspect --fit` predicts is what the engine takes.
#include "memory_fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/runner.h"
#include "halfbyte/engine.h"
#include "model/model_impl.h"
#include "model/synthetic.h"
#include "support/tiny_synthetic.h"

namespace halfbyte::tools {
namespace {

TEST(MemoryFit, EqualsTheEnginesOwnFigures) {
  for (const char* type : {"llama", "qwen2", "qwen3"}) {
    for (const char* plan_name :
         {"f32", "bf16", "w4a16", "w4a8", "w4a4", "w4a4-mxfp4", "w4a16,kv=f32", "w4a16,kv=fp8", "bf16,kv=nvfp4"}) {
      const auto source = synthetic_source(testing::tiny_config(type), type);
      const auto plan = make_load_plan(source, *parse_plan(plan_name), *choose_isa(""));
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const auto model = testing::tiny_model(type, plan_name);
      ASSERT_NE(model, nullptr);
      for (const int64_t context : {32, 100, 256}) {
        for (const int batch : {1, 3, 40}) {
          const auto fit = predict_memory(*plan, context, batch, /*threads=*/2);
          ASSERT_TRUE(fit.ok()) << fit.status().message();
          RunnerLimits limits;
          limits.max_batch = batch;
          limits.prefill_chunk = std::min<int64_t>(EngineOptions{}.prefill_chunk, context);
          limits.page_tokens = EngineOptions{}.page_tokens;
          limits.pages = (context * batch + limits.page_tokens - 1) / limits.page_tokens;
          limits.threads = 2;
          const RunnerFootprint real = cpu_runner_footprint(model->impl(), limits);
          EXPECT_EQ(fit->weights, model->summary().weight_bytes) << type << " " << plan_name;
          EXPECT_EQ(fit->loading, plan->footprint.staging(2)) << type << " " << plan_name;
          EXPECT_EQ(fit->kv, real.kv) << type << " " << plan_name << " " << context << " " << batch;
          EXPECT_EQ(fit->work, real.work) << type << " " << plan_name << " " << context << " " << batch;
        }
      }
    }
  }
}

TEST(MemoryFit, VerdictAndRefusals) {
  const auto plan =
      make_load_plan(synthetic_source(testing::tiny_config("llama"), "llama"), *parse_plan("bf16"), Isa::kRef);
  ASSERT_TRUE(plan.ok());
  EXPECT_THAT(predict_memory(*plan, 257, 1, 1).status().message(), ::testing::HasSubstr("made for 256 tokens"));
  auto fit = predict_memory(*plan, 0, 1, 1);
  ASSERT_TRUE(fit.ok());
  EXPECT_EQ(fit->context, 256);
  fit->available = fit->peak();
  EXPECT_TRUE(fit->fits());
  fit->available = fit->peak() - 1;
  EXPECT_FALSE(fit->fits());
  EXPECT_THAT(memory_fit_text(*fit), ::testing::HasSubstr("does not fit: 1 B too much"));
  // Loading needs its space before there is a cache: the larger of the two counts.
  fit->loading = fit->kv + fit->work + 1000;
  EXPECT_EQ(fit->peak(), fit->weights + fit->loading);
}

}  // namespace
}  // namespace halfbyte::tools
