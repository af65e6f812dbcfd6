// The host's side of the CUDA backend, with a device that is played on the host (fake_cuda/): which rows a pass runs and what
// it is told of them, the order of tokens, and that all memory is taken at the start. Builds with CUDA; needs no device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "engine/cuda_memory.h"
#include "fake_cuda/fake_cuda.h"
#include "halfbyte/engine.h"
#include "model/model_impl.h"
#include "support/cuda_model.h"

namespace halfbyte {
namespace {

using fake_cuda::follows;
using fake_cuda::state;
using ::testing::HasSubstr;

std::vector<int32_t> prompt_of(uint64_t index, int64_t length) {
  std::vector<int32_t> out;
  for (int64_t i = 0; i < length; ++i)
    out.push_back(static_cast<int32_t>((index * 131 + static_cast<uint64_t>(i) * 17) % fake_cuda::kVocab));
  return out;
}

EngineOptions options_of(int max_batch, int64_t prefill_chunk = 64, bool run_ahead = true) {
  EngineOptions out;
  out.device = "cuda";
  out.context = 256;
  out.kv_tokens = 256 * max_batch;
  out.max_batch = max_batch;
  out.prefill_chunk = prefill_chunk;
  out.run_ahead = run_ahead;
  return out;
}

std::unique_ptr<Engine> engine_of(const std::shared_ptr<const Model>& model, const EngineOptions& options) {
  auto engine = Engine::create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

// Runs `count` requests together, every third drawn by the host, and holds their tokens to what the device would say of
// each token at its place.
void expect_their_tokens(Engine& engine, int count, int64_t least = 20) {
  std::map<uint64_t, std::vector<int32_t>> texts;
  std::map<uint64_t, size_t> prompts;
  for (int i = 0; i < count; ++i) {
    GenerateRequest r;
    r.prompt = prompt_of(static_cast<uint64_t>(i), 1 + i * 37 % 100);
    r.max_tokens = least + i % 30;
    r.sampling.temperature = 0;
    r.sampling.logprobs = i % 3 == 2 ? 0 : -1;
    const std::vector<int32_t> prompt = r.prompt;
    const auto id = engine.submit(std::move(r));
    ASSERT_TRUE(id.ok()) << id.status().message();
    texts[*id] = prompt;
    prompts[*id] = prompt.size();
  }
  while (engine.busy()) {
    const auto events = engine.step();
    ASSERT_TRUE(events.ok()) << events.status().message();
    for (const TokenEvent& e : *events) {
      ASSERT_EQ(e.error, "");
      texts[e.request].push_back(e.token);
    }
  }
  for (const auto& [id, text] : texts) {
    EXPECT_GE(static_cast<int64_t>(text.size() - prompts[id]), least);
    for (size_t i = prompts[id]; i < text.size(); ++i)
      ASSERT_EQ(text[i], follows(text[i - 1], static_cast<int32_t>(i) - 1)) << "request " << id << ", token " << i;
  }
}

// From one row to more than a pass takes, padded and in groups; with tokens fed back on the device, and through the host.
TEST(CudaHost, EveryRowIsDrawnAtItsPlace) {
  const auto model = testing::cuda_model("llama", "w4a16");
  ASSERT_NE(model, nullptr);
  for (const bool run_ahead : {true, false}) {
    for (const int batch : {1, 3, 20, 64, 100}) {
      const auto engine = engine_of(model, options_of(batch, 64, run_ahead));
      ASSERT_NE(engine, nullptr);
      for (const int count : {1, 2, batch, batch + 3}) expect_their_tokens(*engine, count);
      if (run_ahead && batch == 1) {
        EXPECT_GT(engine->metrics().steps_ahead, 10u);
      }
    }
  }
  EXPECT_EQ(state().faults, 0u) << "a kernel was to touch memory that nobody has";
}

TEST(CudaHost, ScoresAreOfTheirPositions) {
  for (const char* plan : {"w4a16", "w4a4", "bf16"}) {
    const auto model = testing::cuda_model("qwen3", plan);
    ASSERT_NE(model, nullptr);
    for (const int64_t chunk : {1, 7, 64, 512}) {
      const auto engine = engine_of(model, options_of(2, chunk));
      ASSERT_NE(engine, nullptr);
      const std::vector<int32_t> tokens = prompt_of(4, 150);
      for (const int64_t prompt_tokens : {int64_t{30}, INT64_MAX}) {  // the rest as decode rows, or all as a prompt
        ScoreOptions options;
        options.prompt_tokens = prompt_tokens;
        const auto scores = engine->score(tokens, options);
        ASSERT_TRUE(scores.ok()) << scores.status().message();
        ASSERT_EQ(scores->argmax.size(), tokens.size() - 1);
        for (size_t i = 0; i + 1 < tokens.size(); ++i)
          ASSERT_EQ(scores->argmax[i], follows(tokens[i], static_cast<int32_t>(i))) << plan << ", chunk " << chunk;
      }
    }
  }
  EXPECT_EQ(state().faults, 0u);
}

// All shapes of passes, prompts, scores and set-aside requests: nothing is allocated once the engine is there.
TEST(CudaHost, NothingIsAllocatedAfterTheStart) {
  for (const bool wgmma : {true, false}) {
    state().wgmma = wgmma;
    for (const char* plan : {"w4a16", "w4a8-mxfp4", "bf16", "w4a16,layers.1.*:weights=bf16,lm_head:weights=nvfp4"}) {
      const auto model = testing::cuda_model("llama", plan);
      ASSERT_NE(model, nullptr);
      EngineOptions options = options_of(64, 100);
      options.kv_tokens = 256 * 8;  // too few pages: requests are set aside
      const auto engine = engine_of(model, options);
      ASSERT_NE(engine, nullptr) << plan;
      const uint64_t makes = state().makes;
      const size_t live = state().live;
      for (const int count : {64, 33, 17, 16, 5, 2, 1}) expect_their_tokens(*engine, count, /*least=*/110);
      ASSERT_TRUE(engine->score(prompt_of(1, 200)).ok());
      EXPECT_GT(engine->metrics().preemptions, 0u);
      EXPECT_EQ(state().makes, makes) << plan;
      EXPECT_EQ(state().live, live);
    }
  }
  state().wgmma = true;
  EXPECT_GT(state().captures, 20u) << "graphs are captured when a shape first runs";
  EXPECT_EQ(state().faults, 0u);
}

// More step classes than rows of a pass, each on the device when its request draws.
TEST(CudaHost, PoliciesFindTheirStepClasses) {
  const auto model = testing::cuda_model("llama", "w4a16");
  ASSERT_NE(model, nullptr);
  const auto engine = engine_of(model, options_of(3));
  ASSERT_NE(engine, nullptr);
  const uint64_t makes = state().makes;
  std::vector<std::shared_ptr<const StepClasses>> kept;  // nobody lets go of any
  for (uint64_t round = 0; round < 4; ++round) {
    for (uint64_t i = 0; i < 5; ++i) {
      GenerateRequest r;
      r.prompt = prompt_of(i, 10);
      r.max_tokens = 20;
      r.sampling.seed = 1 + round * 5 + i;
      r.sampling.policy.rule = TemperatureRule::kReset;
      // Longer than the vocabulary, too: whoever makes them may pad.
      kept.push_back(std::make_shared<const StepClasses>(fake_cuda::kVocab + i, static_cast<uint8_t>(r.sampling.seed)));
      r.step_classes = kept.back();
      ASSERT_TRUE(engine->submit(std::move(r)).ok());
    }
    while (engine->busy()) {
      const auto events = engine->step();
      ASSERT_TRUE(events.ok()) << events.status().message();
      for (const TokenEvent& e : *events) ASSERT_EQ(e.error, "");
    }
  }
  EXPECT_GT(state().class_reads, 200u);
  EXPECT_EQ(state().faults, 0u) << "a request read another one's classes";
  EXPECT_EQ(state().makes, makes);
}

// What was reckoned before anything was uploaded is what is taken, give or take what stands for rounding up.
TEST(CudaHost, TakesWhatWasReckoned) {
  for (const char* plan : {"w4a16", "bf16"}) {
    const auto model = testing::cuda_model("qwen3", plan);
    ASSERT_NE(model, nullptr);
    const auto memory = cuda_memory();
    ASSERT_TRUE(memory.ok());
    const CudaModelShape shape = cuda_model_shape(model->config(), model->plan(), model->impl().weights, memory->wgmma);
    const size_t before = state().live;
    const auto engine = engine_of(model, options_of(40, 200));
    ASSERT_NE(engine, nullptr);
    const uint64_t taken = state().live - before;
    const uint64_t weights = cuda_weight_bytes(shape, memory->multiprocessors);
    const uint64_t reckoned = weights + cuda_runner_footprint(shape, {40, 200, 40 * 256 / 32, 32}).total();
    EXPECT_LE(taken, reckoned + (uint64_t{4} << 20)) << plan << ": passes' inputs and policies are of a fixed size";
    EXPECT_GE(taken + taken / 3, reckoned) << plan;
  }
}

TEST(CudaHost, MemoryRunsOutAtTheStartWithAllNumbers) {
  const auto model = testing::cuda_model("llama", "w4a16");
  ASSERT_NE(model, nullptr);
  const size_t memory = state().memory;
  state().memory = state().live + (size_t{1} << 20);
  const Status none = Engine::create(model, options_of(4)).status();
  EXPECT_EQ(none.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(none.message(), HasSubstr("the model's weights take "));
  state().memory = state().live + (size_t{400} << 20);
  EngineOptions large = options_of(64, 4096);
  large.context = 2048;
  large.kv_tokens = 2048 * 64;
  const uint64_t makes = state().makes;
  const Status short_of = Engine::create(model, large).status();
  EXPECT_EQ(short_of.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(short_of.message(), HasSubstr("a KV cache of 131072 tokens needs "));
  EXPECT_THAT(short_of.message(), HasSubstr("and work space "));
  EXPECT_EQ(state().makes, makes) << "said before anything is uploaded";
  state().memory = memory;
  EXPECT_NE(engine_of(model, large), nullptr);
}

}  // namespace
}  // namespace halfbyte
