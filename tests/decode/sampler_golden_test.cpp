// The sampler against the numpy definition, case by case and bit for bit.
#include <gtest/gtest.h>

#include "decode/marker_penalty.h"
#include "decode/sampler.h"
#include "support/golden_file.h"

namespace halfbyte {
namespace {

using testing::GoldenFile;

const GoldenFile& golden() {
  static const GoldenFile file = GoldenFile::open_topic("sampler");
  return file;
}

SamplingParams read_params(const std::string& name) {
  const GoldenFile& g = golden();
  SamplingParams p;
  p.temperature = g.scalar<float>(name + "/temperature");
  p.top_k = g.scalar<int32_t>(name + "/top_k");
  p.top_p = g.scalar<float>(name + "/top_p");
  p.min_p = g.scalar<float>(name + "/min_p");
  p.repetition_penalty = g.scalar<float>(name + "/repetition_penalty");
  p.frequency_penalty = g.scalar<float>(name + "/frequency_penalty");
  p.presence_penalty = g.scalar<float>(name + "/presence_penalty");
  p.seed = g.scalar<uint64_t>(name + "/seed");
  p.choice = g.scalar<uint32_t>(name + "/choice");
  const auto tokens = g.get<int32_t>(name + "/bias_tokens");
  const auto values = g.get<float>(name + "/bias_values");
  for (size_t i = 0; i < tokens.size(); ++i) p.logit_bias.emplace_back(tokens[i], values[i]);
  p.marker_penalty = g.scalar<float>(name + "/marker_penalty");
  p.marker_tokens = g.get<int32_t>(name + "/marker_tokens");
  return p;
}

class SamplerGolden : public ::testing::TestWithParam<const LogitFns*> {};

TEST_P(SamplerGolden, DrawsTheDefinitionsTokens) {
  const GoldenFile& g = golden();
  int compared = 0;
  for (const std::string& set : g.children("sets")) {
    const auto logits = g.get<float>("sets/" + set + "/logits");
    const auto prompt = g.get<int32_t>("sets/" + set + "/prompt");
    const auto vocab = static_cast<int64_t>(logits.size());
    Sampler sampler(vocab, *GetParam());
    for (const std::string& c : g.children("cases")) {
      const std::string at = "sets/" + set + "/" + c;
      if (!g.has(at + "/token")) continue;
      SamplingParams params = read_params("cases/" + c);
      params.entropy = true;
      const auto generated = g.get<int32_t>(at + "/generated");
      TokenHistory history(vocab);
      for (const int32_t t : prompt) history.add_prompt(t);
      for (const int32_t t : generated) history.add_generated(t);
      std::vector<float> scratch = logits;
      SampledToken out;
      const Status status = sampler.sample(scratch, params, &history, prompt.size() + generated.size(), out);
      ASSERT_TRUE(status.ok()) << at << ": " << status.message();
      EXPECT_EQ(out.token, g.scalar<int32_t>(at + "/token")) << at;
      EXPECT_EQ(out.entropy, static_cast<float>(g.scalar<double>("sets/" + set + "/H"))) << at;
      ++compared;
    }
  }
  EXPECT_GT(compared, 100);
}

TEST(MarkerPenalty, HasTheDefinitionsWords) {
  std::string words;
  for (const std::string_view word : marker_words()) words += (words.empty() ? "" : " ") + std::string(word);
  EXPECT_EQ(words, golden().text("markers/words"));
}

TEST_P(SamplerGolden, DrawsTheDefinitionsTokensAtManyPositions) {
  const auto logits = golden().get<float>("positions/logits");
  const auto tokens = golden().get<int32_t>("positions/tokens");
  const SamplingParams params = read_params("positions");
  Sampler sampler(static_cast<int64_t>(logits.size()), *GetParam());
  for (size_t position = 0; position < tokens.size(); ++position) {
    std::vector<float> scratch = logits;
    SampledToken out;
    ASSERT_TRUE(sampler.sample(scratch, params, nullptr, position, out).ok());
    EXPECT_EQ(out.token, tokens[position]) << position;
  }
}

TEST_P(SamplerGolden, SumsAreTheDefinitionsInEveryBit) {
  const GoldenFile& g = golden();
  const auto logits = g.get<float>("entropy/logits");
  const auto sizes = g.get<int32_t>("entropy/sizes");
  const auto max = g.get<float>("entropy/max");
  const auto entropy = g.get<double>("entropy/H");
  const auto logprob = g.get<float>("entropy/logprob_of_last");
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t n = sizes[i];
    const float m = GetParam()->finite_max(logits.data(), n);
    const LogitSums sums = GetParam()->sums(logits.data(), n, m);
    EXPECT_EQ(m, max[i]) << n;
    EXPECT_EQ(sums.entropy, entropy[i]) << n;
    EXPECT_EQ(token_logprob(logits[static_cast<size_t>(n - 1)], m, sums), logprob[i]) << n;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, SamplerGolden, ::testing::ValuesIn(logit_fns_here().begin(), logit_fns_here().end()),
                         [](const auto& form) { return std::string(form.param->name); });

}  // namespace
}  // namespace halfbyte
