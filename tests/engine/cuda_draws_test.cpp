// The device's draw beside the host's sampler over 100,000 tokens from logits of real models: greedy, temperatures, min-p,
// top-k, top-p, entropies and every temperature policy, whose states move on by themselves on both sides. Skipped without a
// device.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "decode/sampler.h"
#include "halfbyte/chat.h"
#include "kernels/cuda/cuda_support.h"
#include "model/config.h"
#include "support/shared_data.h"

namespace halfbyte {
namespace {

using cuda::kMaxRows;
using cuda::testing::device_bytes;
using cuda::testing::download;
using cuda::testing::upload;

constexpr int kPlaces = 512;  // rounds of a block of rows, all noted before the host looks

template <class T>
T value_or_throw(Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}

// Logits of the CPU over an answer of the model's own, [positions][vocab].
std::vector<float> logits_of(const std::string& path, const std::string& question, int64_t& vocab) {
  LoadOptions load;
  load.plan = value_or_throw(parse_plan("w4a16"));
  EngineOptions options;
  options.context = 512;
  const auto engine = value_or_throw(Engine::create(value_or_throw(Model::load(path, load)), options));
  const TextModel text = value_or_throw(open_text_model(path));
  GenerateRequest r;
  r.prompt = value_or_throw(chat_prompt(text, {{.role = "user", .content = question}})).tokens;
  std::vector<int32_t> tokens = r.prompt;
  r.max_tokens = 120;
  r.sampling.temperature = 0.8f;
  value_or_throw(engine->submit(std::move(r)));
  while (engine->busy())
    for (const TokenEvent& e : value_or_throw(engine->step())) tokens.push_back(e.token);
  ScoreOptions score;
  score.logits = true;
  vocab = engine->model().config().vocab;
  return value_or_throw(engine->score(tokens, score)).logits;
}

// How row m draws: two of sixteen greedy, the rest at temperatures and by policies.
SamplingParams params_of(int m, int block) {
  SamplingParams p;
  p.seed = static_cast<uint64_t>(1000 * block + m);
  p.choice = static_cast<uint32_t>(m % 2);
  p.entropy = m % 3 == 0;
  p.temperature = m % 8 == 0 ? 0.0f : 0.5f + 0.1f * static_cast<float>(m % 8);
  p.min_p = m % 5 == 1 ? 0.05f : 0.0f;
  constexpr int kTopK[] = {0, 20, 1, 0, 5, 3000};
  constexpr float kTopP[] = {1.0f, 0.95f, 1.0f, 0.8f, 0.5f, 0.999f, 1.0f};
  p.top_k = kTopK[(m + block) % 6];
  p.top_p = kTopP[(m + 2 * block) % 7];
  if (m < 6) return p;
  p.policy.rule = static_cast<TemperatureRule>(1 + m % 5);
  p.policy.window = m == 6 ? 100 : 1 + m;
  p.policy.include_current = m % 2 == 0;
  p.policy.tau0 = 0.4;
  p.policy.t_low = m % 4 == 3 ? 0.0f : 0.3f;
  return p;
}

// A row on both sides.
struct Row {
  SamplingParams params;
  std::optional<TemperatureState> policy;
};

// The rows' rules for the device; `states` is [kMaxRows] sums, `rings` [kMaxRows][128].
std::vector<cuda::DrawRule> rules_of(const std::vector<Row>& rows, const cuda::DeviceBuffer& states,
                                     const cuda::DeviceBuffer& rings, const cuda::DeviceBuffer& classes,
                                     int64_t vocab) {
  std::vector<cuda::DrawRule> rules;
  for (size_t m = 0; m < rows.size(); ++m) {
    const SamplingParams& p = rows[m].params;
    cuda::DrawRule rule;
    rule.temperature = p.temperature;
    rule.min_p = p.min_p;
    rule.top_k = p.top_k;
    rule.top_p = p.top_p;
    rule.seed = p.seed;
    rule.choice = p.choice;
    rule.wants_entropy = p.entropy;
    rule.by_entropy = rows[m].policy.has_value();
    rule.state = states.as<TemperatureSums>() + m;
    rule.ring = rings.as<double>() + 128 * m;
    rule.classes = classes.as<uint8_t>();
    rule.class_count = static_cast<int32_t>(vocab);
    rules.push_back(rule);
  }
  return rules;
}

// 16 rows of logits, `rounds` draws of each; returns how many were compared.
int64_t compare_block(const float* logits, int64_t vocab, int block, int rounds) {
  std::vector<Row> rows(kMaxRows);
  std::vector<TemperatureSums> sums(kMaxRows);
  for (int m = 0; m < kMaxRows; ++m) {
    Row& row = rows[static_cast<size_t>(m)];
    row.params = params_of(m, block);
    if (!cuda::active_kernels().clusters) {  // the host's there
      row.params.top_k = 0;
      row.params.top_p = 1.0f;
    }
    if (row.params.policy.rule == TemperatureRule::kFixed) continue;
    row.policy.emplace(row.params.policy);
    sums[static_cast<size_t>(m)] = row.policy->sums();
  }
  StepClasses classes(static_cast<size_t>(vocab));
  for (size_t i = 0; i < classes.size(); ++i) classes[i] = i % 7 == 0 ? 2 : i % 3 == 0 ? 1 : 0;
  const size_t count = static_cast<size_t>(kMaxRows * vocab);
  const auto device_logits = upload(std::vector<float>(logits, logits + count));
  const auto states = upload(sums), device_classes = upload(std::vector<uint8_t>(classes));
  const auto rings = device_bytes(kMaxRows * 128 * sizeof(double)), tokens = device_bytes(kMaxRows * 4);
  const auto positions = upload(std::vector<int32_t>(kMaxRows, 0));
  const auto drawn = device_bytes(kPlaces * kMaxRows * sizeof(cuda::Drawn), /*poison=*/true);
  const auto rules = upload(rules_of(rows, states, rings, device_classes, vocab));
  cuda::DrawRows a;
  a.logits.partial = device_logits.as<float>();
  a.logits.rows = static_cast<int>(vocab);
  a.logits.columns = kMaxRows;
  a.vocab = static_cast<int>(vocab);
  a.rules = rules.as<cuda::DrawRule>();
  a.tokens = tokens.as<int32_t>();
  a.positions = positions.as<int32_t>();
  a.advance = true;
  a.drawn = drawn.as<cuda::Drawn>();
  a.drawn_places = kPlaces;
  a.drawn_stride = kMaxRows;
  for (int i = 0; i < rounds; ++i) EXPECT_TRUE(cuda::draw_rows(a, kMaxRows, {}).ok());
  const auto got = download<cuda::Drawn>(drawn, static_cast<size_t>(rounds) * kMaxRows);

  Sampler sampler(vocab);
  int64_t compared = 0, different = 0;
  for (int i = 0; i < rounds; ++i) {
    for (size_t m = 0; m < rows.size(); ++m) {
      Row& row = rows[m];
      std::vector<float> copy(logits + static_cast<int64_t>(m) * vocab, logits + static_cast<int64_t>(m + 1) * vocab);
      SampledToken expected;
      EXPECT_TRUE(sampler
                      .sample(copy, row.params, nullptr, static_cast<uint64_t>(i) + 1, expected,
                              row.policy ? &*row.policy : nullptr)
                      .ok());
      if (row.policy) row.policy->accept(step_class(classes, expected.token));
      const cuda::Drawn& d = got[static_cast<size_t>(i) * kMaxRows + m];
      const bool reports = row.params.entropy || row.policy;
      different += d.token != expected.token || d.temperature != expected.temperature ||
                           (reports && d.entropy != expected.entropy)
                       ? 1
                       : 0;
      ++compared;
    }
  }
  EXPECT_EQ(different, 0) << "block " << block;
  const auto after = download<TemperatureSums>(states, kMaxRows);
  const auto ring = download<double>(rings, kMaxRows * 128);
  for (size_t m = 0; m < rows.size(); ++m) {
    if (!rows[m].policy) continue;
    EXPECT_EQ(after[m], rows[m].policy->sums()) << "the state of row " << m;
    const std::vector<double>& expected = rows[m].policy->ring();
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), ring.begin() + static_cast<std::ptrdiff_t>(128 * m)))
        << "the ring of row " << m;
  }
  return compared;
}

TEST(CudaDraws, EqualTheHostsOverRealLogits) {
  HB_NEED_DEVICE();
  int64_t vocab = 0, compared = 0;
  int block = 0;
  for (const char* question : {"find 793102+226757", "make 24 from 10, 25, 9"}) {
    const auto logits = logits_of(HALFBYTE_SOURCE_DIR "/models/halfbyte-reasoner", question, vocab);
    const auto rows = static_cast<int64_t>(logits.size()) / vocab;
    for (int64_t first = 0; first + kMaxRows <= rows && compared < 100000; first += kMaxRows)
      compared += compare_block(logits.data() + first * vocab, vocab, block++, kPlaces);
  }
  while (compared < 100000) {  // short answers: further seeds
    const auto logits = logits_of(HALFBYTE_SOURCE_DIR "/models/halfbyte-reasoner", "find 586287+529011", vocab);
    compared += compare_block(logits.data(), vocab, block++, kPlaces);
  }
  EXPECT_GE(compared, 100000);
}

TEST(CudaDraws, EqualTheHostsOverALargeVocabulary) {
  HB_NEED_DEVICE();
  const std::string path = testing::smollm2_gguf();
  HB_SKIP_WITHOUT(path, "the SmolLM2 GGUF");
  int64_t vocab = 0;
  const auto logits = logits_of(path, "Write a short poem about the sea.", vocab);
  for (int block = 0; block < 3; ++block)
    EXPECT_EQ(compare_block(logits.data() + block * kMaxRows * vocab, vocab, 100 + block, 256), kMaxRows * 256);
}

// Few different logits: prefixes end among tokens of one weight, of which the lowest ids stay.
TEST(CudaDraws, EqualTheHostsAmongTies) {
  HB_NEED_DEVICE();
  for (const int64_t vocab : {97, 5000, 151936}) {
    for (const float step : {0.25f, 2.0f, 30.0f}) {
      std::vector<float> logits(static_cast<size_t>(kMaxRows * vocab));
      for (size_t i = 0; i < logits.size(); ++i)
        logits[i] = step * static_cast<float>(philox_draw(5, static_cast<uint32_t>(vocab), i) % 9);
      EXPECT_GT(compare_block(logits.data(), vocab, static_cast<int>(vocab % 7), vocab > 100000 ? 12 : 60), 0);
    }
  }
}

}  // namespace
}  // namespace halfbyte
