// The host's side of the CUDA backend, with a device that is played on the host (fake_cuda/): which rows a pass runs and what
// it is told of them, the order of tokens, and that all memory is taken at the start. Builds with CUDA; needs no device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

#include "engine/checks.h"
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

// A field of the device's state for as long as this is there.
template <class T>
class Changed {
 public:
  Changed(T& field, T value) : field_(field), before_(std::exchange(field, value)) {}
  ~Changed() { field_ = before_; }
  Changed(const Changed&) = delete;
  Changed& operator=(const Changed&) = delete;

 private:
  T& field_;
  T before_;
};

CudaModelShape shape_of(const Model& model) {
  return cuda_model_shape(model.config(), model.plan(), model.impl().weights, state().wgmma);
}
RunnerLimits limits_of(const CudaModelShape& shape, const EngineOptions& options) {
  const auto resolved = resolve_options(shape.config, options, UINT64_MAX,
                                        [&](const RunnerLimits& l) { return cuda_runner_footprint(shape, l); });
  EXPECT_TRUE(resolved.ok()) << resolved.status().message();
  return resolved.ok() ? resolved->limits : RunnerLimits{};
}

std::vector<fake_cuda::Piece> pieces_of(const CudaWorkLayout& layout) {
  std::vector<fake_cuda::Piece> out;
  const auto add = [&](std::initializer_list<WorkPiece> pieces) {
    for (const WorkPiece& piece : pieces) out.push_back({piece.offset, piece.bytes});
  };
  const auto add_inputs = [&](std::initializer_list<CudaInputPieces> inputs) {
    for (const CudaInputPieces& in : inputs) add({in.fp4, in.bf16, in.scales});
  };
  add({layout.tables, layout.residual, layout.plain, layout.classes});
  for (const auto& [key, g] : layout.groups) {
    add_inputs({g.attention, g.o, g.mlp, g.down, g.head});
    add({g.partial, g.logits_partial, g.parts, g.stats});
  }
  const CudaPromptPieces& p = layout.prompt;
  add_inputs({p.attention, p.o, p.mlp, p.down});
  add({p.tokens, p.positions, p.tables, p.residual, p.queries, p.attended, p.y});
  return out;
}

// With work space whose pieces the device knows.
std::unique_ptr<Engine> engine_of(const std::shared_ptr<const Model>& model, const EngineOptions& options) {
  const CudaModelShape shape = shape_of(*model);
  const CudaWorkLayout layout = lay_out_cuda_work(shape, cuda_pass_limits(shape.config, limits_of(shape, options)));
  fake_cuda::divide_next(layout.bytes, pieces_of(layout));
  auto engine = Engine::create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  EXPECT_TRUE(fake_cuda::divided()) << "no allocation of " << layout.bytes << " bytes";
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
    const Changed kept(state().wgmma, wgmma);
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

// Cache and work space are what was reckoned, give or take what stands for rounding up; two engines have the same weights.
TEST(CudaHost, TakesWhatWasReckoned) {
  for (const char* plan : {"w4a16", "bf16"}) {
    const auto model = testing::cuda_model("qwen3", plan);
    ASSERT_NE(model, nullptr);
    const CudaModelShape shape = shape_of(*model);
    const auto taken_and_reckoned = [&](const EngineOptions& options) {
      const size_t before = state().live;
      const auto engine = engine_of(model, options);
      return std::pair(static_cast<int64_t>(state().live - before),
                       static_cast<int64_t>(cuda_runner_footprint(shape, limits_of(shape, options)).total()));
    };
    EngineOptions large = options_of(40, 200);
    large.kv_tokens = 2048 * 40;
    const auto [small_taken, small_reckoned] = taken_and_reckoned(options_of(1, 16));
    const auto [taken, reckoned] = taken_and_reckoned(large);
    EXPECT_GT(reckoned - small_reckoned, int64_t{100} << 20) << "more than rounding";
    EXPECT_NEAR(static_cast<double>(taken - small_taken), static_cast<double>(reckoned - small_reckoned), 4 << 20);
  }
}

TEST(CudaHost, MemoryRunsOutAtTheStartWithAllNumbers) {
  const auto model = testing::cuda_model("llama", "w4a16");
  ASSERT_NE(model, nullptr);
  {
    const Changed kept(state().memory, state().live + (size_t{1} << 20));
    const Status none = Engine::create(model, options_of(4)).status();
    EXPECT_EQ(none.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(none.message(), HasSubstr("the model's weights take "));
  }
  EngineOptions large = options_of(64, 4096);
  large.context = 2048;
  large.kv_tokens = 2048 * 64;
  {
    const Changed kept(state().memory, state().live + (size_t{400} << 20));
    const uint64_t makes = state().makes;
    const Status short_of = Engine::create(model, large).status();
    EXPECT_EQ(short_of.code(), StatusCode::kResourceExhausted);
    EXPECT_THAT(short_of.message(), HasSubstr("a KV cache of 131072 tokens needs "));
    EXPECT_THAT(short_of.message(), HasSubstr("and work space "));
    EXPECT_EQ(state().makes, makes) << "said before anything is uploaded";
  }
  EXPECT_NE(engine_of(model, large), nullptr);
}

}  // namespace
}  // namespace halfbyte
