// A request's tokens and logits do not depend on its company, on how its prompt is cut, or on the thread count: in
// every plan, with every kernel set that runs here, bit for bit (docs/numerics.md 3 and 5).
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <map>
#include <set>

#include "base/rng.h"
#include "halfbyte/engine.h"
#include "kernels/registry.h"
#include "model/model_impl.h"
#include "support/tiny_synthetic.h"

namespace halfbyte {
namespace {

using testing::tiny_config;
using testing::tiny_model;

constexpr uint64_t kVocab = 131;

// What a request gave.
struct Trace {
  std::vector<int32_t> tokens;
  std::vector<uint32_t> logits;  // the bits of [tokens, vocab], before sampling
  std::vector<float> entropies;
  std::vector<float> logprobs;  // drawn token and the 5 most likely, token by token
  bool operator==(const Trace&) const = default;
};

GenerateRequest request(uint64_t index) {
  GenerateRequest r;
  // The first prompt is longer than 64, so that each chunk size below cuts it, or not, in its own way.
  const uint64_t length = index == 0 ? 70 : 1 + philox_draw(3, 0, index) % (index % 4 == 3 ? 37 : 12);
  for (uint64_t i = 0; i < length; ++i)
    r.prompt.push_back(static_cast<int32_t>(philox_draw(4, static_cast<uint32_t>(index), i) % kVocab));
  r.max_tokens = 4 + static_cast<int64_t>(index % 3);
  r.sampling.temperature = index % 4 == 0 ? 0.0f : 0.9f;
  r.sampling.top_p = index % 3 == 0 ? 0.9f : 1.0f;
  r.sampling.repetition_penalty = index % 5 == 1 ? 1.2f : 1.0f;
  r.sampling.seed = 100 + index;
  r.sampling.entropy = true;
  r.sampling.logprobs = 5;
  return r;
}

std::vector<Trace> run(const std::shared_ptr<const Model>& model, const std::vector<GenerateRequest>& requests,
                       const EngineOptions& options) {
  auto engine = Engine::create(model, options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  std::map<uint64_t, size_t> index;
  std::vector<Trace> traces(requests.size());
  (*engine)->set_logits_tap([&](uint64_t id, int64_t position, std::span<const float> logits) {
    Trace& t = traces[index.at(id)];
    EXPECT_EQ(position, static_cast<int64_t>(requests[index.at(id)].prompt.size() + t.tokens.size()));
    for (const float l : logits) t.logits.push_back(std::bit_cast<uint32_t>(l));
  });
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto id = (*engine)->submit(requests[i]);
    EXPECT_TRUE(id.ok()) << id.status().message();
    index[*id] = i;
  }
  while ((*engine)->busy()) {
    const auto events = (*engine)->step();
    EXPECT_TRUE(events.ok()) << events.status().message();
    for (const TokenEvent& e : *events) {
      EXPECT_EQ(e.error, "");
      Trace& t = traces[index.at(e.request)];
      t.tokens.push_back(e.token);
      t.entropies.push_back(e.entropy);
      t.logprobs.push_back(e.logprob->logprob);
      for (const TokenLogprob& top : e.top) t.logprobs.push_back(top.logprob);
    }
  }
  for (const Trace& t : traces) EXPECT_EQ(t.logits.size(), t.tokens.size() * kVocab);
  return traces;
}

struct Case {
  std::string plan;
  std::string kernels;
  int64_t head_dim = 12;  // 32: prompt rows attend in the tile order
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.plan << " with " << c.kernels << ", head_dim " << c.head_dim;
}

std::vector<Case> cases() {
  std::vector<Case> out;
  for (const Isa isa : all_isas())
    if (isa_runs_here(isa)) {
      for (const std::string& plan : plan_preset_names())  // int4 and int3 run bf16's kernels
        if (!plan.starts_with("int")) out.push_back({plan, isa_name(isa)});
      for (const char* kv : {"fp8", "nvfp4", "e1m2"}) out.push_back({std::string("w4a16,kv=") + kv, isa_name(isa)});
      if (isa == Isa::kAmx) out.push_back({"w4a16", isa_name(isa), 32});
    }
  return out;
}

class Invariance : public ::testing::TestWithParam<Case> {};

TEST_P(Invariance, CompanyChunksAndThreadsChangeNothing) {
  const auto model = tiny_model("qwen3", GetParam().plan, GetParam().kernels, GetParam().head_dim);
  ASSERT_NE(model, nullptr);
  ASSERT_EQ(model->summary().kernels, GetParam().kernels);
  EngineOptions alone;
  alone.threads = 1;
  std::vector<Trace> expected;
  for (uint64_t i = 0; i < 16; ++i) expected.push_back(run(model, {request(i)}, alone)[0]);
  std::set<std::vector<int32_t>> distinct;
  for (const Trace& t : expected) distinct.insert(t.tokens);
  ASSERT_GT(distinct.size(), 12u) << "the requests must differ for this test to mean anything";

  EngineOptions options;
  options.kv_tokens = 16 * 96;
  options.context = 96;
  // Every mix; of the reference, which is slow, the corners.
  const bool slow = GetParam().kernels == "ref";
  const auto chunks = slow ? std::vector<int64_t>{1, 64} : std::vector<int64_t>{1, 16, 64, 512};
  const auto thread_counts = slow ? std::vector<int>{1, 3} : std::vector<int>{1, 2, 3};
  for (const uint64_t company : {1, 2, 7, 16}) {
    std::vector<GenerateRequest> requests;
    for (uint64_t i = 0; i < company; ++i) requests.push_back(request(i));
    for (const int64_t chunk : chunks) {
      for (const int threads : thread_counts) {
        options.prefill_chunk = chunk;
        options.threads = threads;
        const std::vector<Trace> got = run(model, requests, options);
        for (uint64_t i = 0; i < company; ++i) {
          const std::string at = "request " + std::to_string(i) + " of " + std::to_string(company) + ", chunk " +
                                 std::to_string(chunk) + ", " + std::to_string(threads) + " threads";
          EXPECT_EQ(got[i].tokens, expected[i].tokens) << at;
          EXPECT_TRUE(got[i] == expected[i]) << at << ": logits or log-probabilities differ";
        }
      }
    }
  }
}

// Where decode and prompt rows have kernels of their own, both round their rows of one input apart. Here the two are equal,
// and so must be the results. (On a set in which they are the same kernel: `amx` adds prompt rows in another order.)
TEST(Kernels, OfEachRoleRunBesideEachOther) {
  const char* kernels = isa_runs_here(Isa::kAvx2) ? "avx2" : "ref";
  for (const char* plan : {"w4a16", "w4a4,layers.0.*.k_proj:activations=bf16"}) {
    const auto model = tiny_model("qwen3", plan, kernels), twins = tiny_model("qwen3", plan, kernels);
    std::map<const LinearKernel*, LinearKernel> copies;
    for (LayerWeights& l : const_cast<ModelWeights&>(twins->impl().weights).layers)
      for (PackedLinear* w : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down})
        w->prompt_kernel = &copies.emplace(w->kernel, *w->kernel).first->second;
    EngineOptions options;
    options.context = 96;
    options.kv_tokens = 8 * 96;
    options.prefill_chunk = 8;
    options.threads = 2;
    std::vector<GenerateRequest> requests;
    for (uint64_t i = 0; i < 8; ++i) requests.push_back(request(i));
    const std::vector<Trace> expected = run(model, requests, options), got = run(twins, requests, options);
    for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(got[i] == expected[i]) << plan << ", request " << i;
  }
}

TEST_P(Invariance, PreemptionChangesNothing) {
  const auto model = tiny_model("llama", GetParam().plan, GetParam().kernels, GetParam().head_dim);
  ASSERT_NE(model, nullptr);
  EngineOptions alone;
  alone.threads = 1;
  EngineOptions tight;
  tight.threads = 2;
  tight.context = 40;
  tight.kv_tokens = 40;
  tight.page_tokens = 2;
  tight.prefill_chunk = 16;
  auto engine = Engine::create(model, tight);
  ASSERT_TRUE(engine.ok()) << engine.status().message();
  std::map<uint64_t, std::vector<int32_t>> got;
  std::vector<uint64_t> ids;
  const auto longer = [](uint64_t i) {
    GenerateRequest r = request(i);
    r.max_tokens = 20 - static_cast<int64_t>(i % 2);
    r.prompt.resize(4 + i, 17);
    return r;
  };
  for (uint64_t i = 0; i < 5; ++i) ids.push_back(*(*engine)->submit(longer(i)));
  while ((*engine)->busy()) {
    const auto events = (*engine)->step();
    ASSERT_TRUE(events.ok());
    for (const TokenEvent& e : *events) got[e.request].push_back(e.token);
  }
  EXPECT_GT((*engine)->metrics().preemptions, 0u);
  EXPECT_EQ((*engine)->metrics().kv_tokens_used, 0);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(got[ids[i]], run(model, {longer(i)}, alone)[0].tokens) << i;
}

TEST_P(Invariance, ScoresDoNotDependOnChunksAndEqualGeneration) {
  const auto model = tiny_model("qwen2", GetParam().plan, GetParam().kernels, GetParam().head_dim);
  ASSERT_NE(model, nullptr);
  EngineOptions options;
  options.threads = 2;
  GenerateRequest ask = request(5);
  while (ask.prompt.size() < 70) ask.prompt.push_back(static_cast<int32_t>(ask.prompt.size() * 3 % kVocab));
  ask.max_tokens = 12;
  ask.sampling = {};
  ask.sampling.entropy = true;
  ask.sampling.logprobs = 0;
  auto engine = Engine::create(model, options);
  ASSERT_TRUE(engine.ok());
  std::vector<int32_t> tokens = ask.prompt;
  std::vector<float> logprobs, entropies, logits;
  (*engine)->set_logits_tap(
      [&](uint64_t, int64_t, std::span<const float> row) { logits.insert(logits.end(), row.begin(), row.end()); });
  ASSERT_TRUE((*engine)->submit(ask).ok());
  while ((*engine)->busy()) {
    const auto events = (*engine)->step();
    ASSERT_TRUE(events.ok());
    for (const TokenEvent& e : *events) {
      tokens.push_back(e.token);
      logprobs.push_back(e.logprob->logprob);
      entropies.push_back(e.entropy);
    }
  }
  ScoreOptions with_logits;
  with_logits.logits = true;
  with_logits.prompt_tokens = static_cast<int64_t>(ask.prompt.size());
  std::vector<float> first_logits;
  for (const int64_t chunk : {1, 16, 64, 512}) {
    options.prefill_chunk = chunk;
    auto scorer = Engine::create(model, options);
    const auto score = (*scorer)->score(tokens, with_logits);
    ASSERT_TRUE(score.ok()) << score.status().message();
    ASSERT_EQ(score->logprobs.size(), tokens.size() - 1);
    ASSERT_EQ(score->logits.size(), (tokens.size() - 1) * kVocab);
    if (first_logits.empty()) first_logits = score->logits;
    EXPECT_EQ(score->logits, first_logits) << "chunk " << chunk;
    EXPECT_EQ(std::vector<float>(score->logits.end() - 12 * kVocab, score->logits.end()), logits) << "chunk " << chunk;
    const std::vector<float> tail(score->logprobs.end() - 12, score->logprobs.end());
    const std::vector<float> tail_entropies(score->entropies.end() - 12, score->entropies.end());
    EXPECT_EQ(tail, logprobs) << "chunk " << chunk;
    EXPECT_EQ(tail_entropies, entropies) << "chunk " << chunk;
  }
}

// Attention cuts positions at multiples of 256: neither chunks nor pages may move those cuts.
class LongSequences : public ::testing::TestWithParam<KvKind> {};

TEST_P(LongSequences, ScoresDependOnNeitherChunksNorPagesAndEqualGeneration) {
  HfConfig config = tiny_config("llama");
  config.max_position_embeddings = 1024;
  LoadOptions load;
  load.plan = *plan_preset("w4a16");
  load.kv = GetParam();
  load.threads = 1;
  const auto model = Model::from_source(synthetic_source(config, "long"), load);
  ASSERT_TRUE(model.ok()) << model.status().message();
  std::vector<int32_t> tokens;
  for (uint64_t i = 0; i < 600; ++i) tokens.push_back(static_cast<int32_t>(philox_draw(8, 0, i) % kVocab));
  std::vector<float> logprobs;
  for (const auto& [chunk, page] : {std::pair<int64_t, int64_t>{512, 32}, {100, 32}, {512, 4}, {255, 256}, {1, 64}}) {
    EngineOptions options;
    options.threads = 2;
    options.prefill_chunk = chunk;
    options.page_tokens = page;
    auto engine = Engine::create(*model, options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    const auto score = (*engine)->score(tokens);
    ASSERT_TRUE(score.ok()) << score.status().message();
    if (logprobs.empty()) logprobs = score->logprobs;
    EXPECT_EQ(score->logprobs, logprobs) << "chunk " << chunk << ", pages of " << page;
  }
  // The last tokens again, generated: single rows, which are split by cuts.
  std::vector<float> first;
  for (const int threads : {1, 2, 3, 8}) {
    GenerateRequest ask;
    ask.prompt.assign(tokens.begin(), tokens.begin() + 560);
    ask.max_tokens = 8;
    ask.sampling.entropy = true;
    EngineOptions options;
    options.threads = threads;
    auto engine = Engine::create(*model, options);
    ASSERT_TRUE(engine.ok() && (*engine)->submit(ask).ok());
    std::vector<float> entropies;
    std::vector<int32_t> all = ask.prompt;
    while ((*engine)->busy()) {
      const auto events = (*engine)->step();
      ASSERT_TRUE(events.ok());
      for (const TokenEvent& e : *events) {
        entropies.push_back(e.entropy);
        all.push_back(e.token);
      }
    }
    ASSERT_EQ(entropies.size(), 8u);
    if (first.empty()) {
      first = entropies;
      ScoreOptions generated;  // scored as the rows that they were: prompt rows may have an order of sums of their own
      generated.prompt_tokens = static_cast<int64_t>(ask.prompt.size());
      const auto score = (*engine)->score(all, generated);
      ASSERT_TRUE(score.ok());
      EXPECT_EQ(std::vector<float>(score->entropies.end() - 8, score->entropies.end()), entropies);
    }
    EXPECT_EQ(entropies, first) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Kv, LongSequences,
                         ::testing::Values(KvKind::kF32, KvKind::kBF16, KvKind::kFP8, KvKind::kNVFP4, KvKind::kE1M2),
                         [](const auto& kind) { return std::string(name_of(kind.param)); });

INSTANTIATE_TEST_SUITE_P(Plans, Invariance, ::testing::ValuesIn(cases()), [](const auto& c) {
  std::string name = c.param.plan + "_" + c.param.kernels + (c.param.head_dim == 12 ? "" : "_tiles");
  for (char& letter : name) letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
  return name;
});

}  // namespace
}  // namespace halfbyte
