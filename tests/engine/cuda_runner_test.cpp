// The engine on a CUDA device: near the CPU's logits in every plan, the CPU's greedy tokens up to near ties, and a
// request's tokens whatever runs beside it. Skipped where no device can run the kernels.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/rng.h"
#include "engine/cuda_api.h"
#include "halfbyte/engine.h"
#include "model/synthetic.h"

namespace halfbyte {
namespace {

constexpr int32_t kVocab = 1031;

HfConfig config_of(const std::string& model_type) {
  HfConfig c;
  c.file = "the test model";
  c.model_type = model_type;
  c.hidden_size = 320;
  c.intermediate_size = 712;
  c.num_layers = 3;
  c.num_heads = 6;
  c.num_kv_heads = 2;
  c.head_dim = model_type == "qwen3" ? 128 : 64;
  c.vocab_size = kVocab;
  c.max_position_embeddings = 2048;
  c.tie_word_embeddings = true;
  return c;
}

std::shared_ptr<const Model> model_of(const std::string& model_type, const std::string& plan) {
  LoadOptions options;
  options.kernels = "ref";
  options.threads = 2;
  auto parsed = parse_plan(plan);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  options.plan = *parsed;
  auto model = Model::from_source(synthetic_source(config_of(model_type), model_type), options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

std::unique_ptr<Engine> engine_of(const std::shared_ptr<const Model>& model, const std::string& device,
                                  int64_t kv_tokens = 4096) {
  EngineOptions options;
  options.device = device;
  options.threads = 2;
  options.context = std::min<int64_t>(1024, kv_tokens);
  options.kv_tokens = kv_tokens;
  options.max_batch = 20;
  options.prefill_chunk = 64;
  auto engine = Engine::create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(engine).value() : nullptr;
}

std::vector<int32_t> prompt_of(uint64_t index, uint64_t length) {
  std::vector<int32_t> out;
  for (uint64_t i = 0; i < length; ++i)
    out.push_back(static_cast<int32_t>(philox_draw(11, static_cast<uint32_t>(index), i) % kVocab));
  return out;
}

#define HB_NEED_CUDA() \
  if (const Status usable = cuda_usable(); !usable.ok()) GTEST_SKIP() << "no CUDA device: " << usable.message()

struct Case {
  const char* model_type;
  const char* plan;
  double bound;  // of the relative error of logits: rounded inputs that fall on the other side of a border
};
class CudaEngine : public ::testing::TestWithParam<Case> {};

TEST_P(CudaEngine, ScoresNearTheCpu) {
  HB_NEED_CUDA();
  const auto model = model_of(GetParam().model_type, GetParam().plan);
  ASSERT_NE(model, nullptr);
  const auto cpu = engine_of(model, "cpu"), cuda = engine_of(model, "cuda");
  ASSERT_TRUE(cpu != nullptr && cuda != nullptr);
  ScoreOptions options;
  options.logits = true;
  const auto tokens = prompt_of(1, 80);
  const auto a = cpu->score(tokens, options), b = cuda->score(tokens, options);
  ASSERT_TRUE(a.ok() && b.ok()) << a.status().message() << b.status().message();
  double error = 0, norm = 0;
  for (size_t i = 0; i < a->logits.size(); ++i) {
    error += std::pow(static_cast<double>(a->logits[i] - b->logits[i]), 2);
    norm += std::pow(static_cast<double>(a->logits[i]), 2);
  }
  // The greedy token is the CPU's wherever its lead is beyond what the roundings move.
  const double spread = std::sqrt(norm / static_cast<double>(a->logits.size()));
  int compared = 0;
  for (size_t t = 0; t < a->argmax.size(); ++t) {
    std::vector<float> row(a->logits.begin() + static_cast<std::ptrdiff_t>(t) * kVocab,
                           a->logits.begin() + static_cast<std::ptrdiff_t>(t + 1) * kVocab);
    std::nth_element(row.begin(), row.begin() + 1, row.end(), std::greater<>());
    if (static_cast<double>(row[0] - row[1]) < 6 * GetParam().bound * spread) continue;
    EXPECT_EQ(a->argmax[t], b->argmax[t]) << "position " << t;
    ++compared;
  }
  if (GetParam().bound <= 0.01) {
    EXPECT_GT(compared, 25);
  }
  RecordProperty("relative_error", std::to_string(std::sqrt(error / norm)));
  EXPECT_LT(std::sqrt(error / norm), GetParam().bound) << GetParam().plan;
}

INSTANTIATE_TEST_SUITE_P(Plans, CudaEngine,
                         ::testing::Values(Case{"qwen3", "w4a16", 0.01}, Case{"qwen3", "w4a8", 0.05},
                                           Case{"qwen3", "w4a4", 0.15}, Case{"llama", "w4a16", 0.01},
                                           Case{"llama", "w4a16-mxfp4", 0.01}, Case{"llama", "w4a8-mxfp4", 0.05},
                                           Case{"llama", "w4a4-mxfp4", 0.25}, Case{"qwen2", "bf16", 0.01},
                                           Case{"qwen2", "w4a16", 0.01}));

struct Trace {
  std::vector<int32_t> tokens;
  std::vector<float> entropies;
  bool operator==(const Trace&) const = default;
};

GenerateRequest request_of(uint64_t index) {
  GenerateRequest r;
  r.prompt = prompt_of(index, 3 + philox_draw(3, 0, index) % 60);
  r.max_tokens = 24;
  r.sampling.temperature = index % 3 == 0 ? 0.0f : 0.8f;
  r.sampling.top_p = index % 4 == 1 ? 0.9f : 1.0f;  // the host draws
  r.sampling.seed = 7 + index;
  r.sampling.entropy = true;
  return r;
}

std::vector<Trace> generate(Engine& engine, const std::vector<uint64_t>& indices) {
  std::map<uint64_t, size_t> place;
  std::vector<Trace> traces(indices.size());
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto id = engine.submit(request_of(indices[i]));
    EXPECT_TRUE(id.ok()) << id.status().message();
    place[*id] = i;
  }
  while (engine.busy()) {
    const auto events = engine.step();
    EXPECT_TRUE(events.ok()) << events.status().message();
    if (!events.ok()) break;
    for (const TokenEvent& e : *events) {
      EXPECT_EQ(e.error, "");
      traces[place.at(e.request)].tokens.push_back(e.token);
      traces[place.at(e.request)].entropies.push_back(e.entropy);
    }
  }
  return traces;
}

// Alone, in batches of 2, 7 and 18, and through preemption: the same tokens and entropies, bit for bit.
TEST(CudaEngine, TokensDoNotDependOnCompany) {
  HB_NEED_CUDA();
  const auto model = model_of("qwen3", "w4a16");
  ASSERT_NE(model, nullptr);
  const auto engine = engine_of(model, "cuda");
  ASSERT_NE(engine, nullptr);
  std::vector<Trace> alone;
  for (uint64_t i = 0; i < 18; ++i) alone.push_back(generate(*engine, {i})[0]);
  for (const uint64_t count : {2u, 7u, 18u}) {
    std::vector<uint64_t> indices;
    for (uint64_t i = 0; i < count; ++i) indices.push_back(i);
    const auto together = generate(*engine, indices);
    for (uint64_t i = 0; i < count; ++i) EXPECT_EQ(together[i], alone[i]) << "request " << i << " of " << count;
  }
  const auto tight = engine_of(model, "cuda", 256);
  ASSERT_NE(tight, nullptr);
  const auto preempted = generate(*tight, {0, 1, 2, 3, 4, 5, 6, 7});
  EXPECT_GT(tight->metrics().preemptions, 0u) << "the test wants a cache that is too small";
  for (size_t i = 0; i < preempted.size(); ++i) EXPECT_EQ(preempted[i], alone[i]) << "request " << i;
}

TEST(CudaEngine, RefusesWhatItDoesNotHave) {
  HB_NEED_CUDA();
  EngineOptions options;
  options.device = "cuda";
  const auto kv = Engine::create(model_of("qwen3", "w4a16,kv=f32"), options);
  ASSERT_FALSE(kv.ok());
  EXPECT_NE(kv.status().message().find("KV cache in f32"), std::string::npos) << kv.status().message();
  const auto f32 = Engine::create(model_of("qwen3", "f32,kv=bf16"), options);
  ASSERT_FALSE(f32.ok());
  EXPECT_NE(f32.status().message().find("choose another plan"), std::string::npos) << f32.status().message();
}

}  // namespace
}  // namespace halfbyte
