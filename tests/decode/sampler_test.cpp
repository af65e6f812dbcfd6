// Statistics and edge cases of the sampler, against a plain second implementation where it is more than a formula.
#include "decode/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/exp32.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "decode/marker_penalty.h"

namespace halfbyte {
namespace {

std::vector<float> random_logits(size_t count, uint64_t seed, double width) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i)
    out[i] = static_cast<float>((static_cast<double>(philox_draw(seed, 0, i) >> 11) * 0x1p-53 - 0.5) * width);
  return out;
}

SampledToken sample(std::vector<float> logits, const SamplingParams& params, uint64_t position = 0,
                    const TokenHistory* history = nullptr) {
  Sampler sampler(static_cast<int64_t>(logits.size()));
  SampledToken out;
  const Status status = sampler.sample(logits, params, history, position, out);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

// Sort-based truncation and linear draw, as the contract words them.
int32_t plain_draw(const std::vector<float>& logits, const SamplingParams& p, uint64_t position) {
  const float max = *std::max_element(logits.begin(), logits.end()) / p.temperature;
  std::vector<uint64_t> w;
  for (const float l : logits)
    w.push_back(static_cast<uint64_t>(static_cast<double>(exp32(l / p.temperature - max)) * 0x1p31));
  std::vector<size_t> order(w.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return w[a] > w[b]; });
  const double least = static_cast<double>(p.min_p) * static_cast<double>(w[order[0]]);
  for (uint64_t& x : w)
    if (static_cast<double>(x) < least) x = 0;
  if (p.top_k > 0)
    for (size_t i = static_cast<size_t>(p.top_k); i < order.size(); ++i) w[order[i]] = 0;
  uint64_t total = std::accumulate(w.begin(), w.end(), uint64_t{0});
  if (p.top_p < 1.0f) {
    uint64_t sum = 0;
    size_t i = 0;
    do sum += w[order[i++]];
    while (static_cast<double>(sum) < static_cast<double>(p.top_p) * static_cast<double>(total));
    for (; i < order.size(); ++i) w[order[i]] = 0;
    total = sum;
  }
  __extension__ using Wide = unsigned __int128;
  auto r = static_cast<uint64_t>((Wide{philox_draw(p.seed, p.choice, position)} * total) >> 64);
  int32_t token = 0;
  while (w[static_cast<size_t>(token)] <= r) r -= w[static_cast<size_t>(token++)];
  return token;
}

TEST(Sampler, AgreesWithSortingOnRandomRules) {
  for (uint64_t round = 0; round < 400; ++round) {
    const uint64_t bits = philox_draw(77, 0, round);
    const size_t vocab = 1 + bits % 700;
    std::vector<float> logits = random_logits(vocab, round, round % 3 == 0 ? 2.0 : 30.0);
    if (round % 5 == 0)  // ties
      for (float& l : logits) l = std::round(l);
    SamplingParams p;
    p.temperature = 0.25f + static_cast<float>(bits >> 20 & 7) * 0.25f;
    p.top_k = round % 2 == 0 ? static_cast<int>(bits >> 30 & 63) : 0;
    p.top_p = round % 3 == 1 ? 0.05f + 0.9f * static_cast<float>(bits >> 40 & 255) / 255.0f : 1.0f;
    p.min_p = round % 7 == 2 ? static_cast<float>(bits >> 50 & 255) / 255.0f : 0.0f;
    p.seed = bits;
    for (uint64_t position = 0; position < 5; ++position)
      ASSERT_EQ(sample(logits, p, position).token, plain_draw(logits, p, position)) << "round " << round;
  }
}

TEST(Sampler, FrequenciesFollowTheProbabilities) {
  const std::vector<float> logits{0.0f, std::log(2.0f), std::log(3.0f), std::log(4.0f), -80.0f};
  constexpr int kDraws = 40000;
  std::vector<int> counts(logits.size());
  SamplingParams p;
  p.seed = 5;
  for (uint64_t i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(sample(logits, p, i).token)];
  double chi_squared = 0;
  for (size_t i = 0; i < 4; ++i) {
    const double expected = kDraws * static_cast<double>(i + 1) / 10.0;
    chi_squared += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  EXPECT_LT(chi_squared, 16.3);  // 3 degrees of freedom, p = 0.001; the seed is fixed, so this is no gamble
  EXPECT_EQ(counts[4], 0);
}

TEST(Sampler, SeedChoiceAndPositionEachChangeTheDraw) {
  const std::vector<float> logits(1000, 0.0f);
  SamplingParams a;
  a.seed = 1;
  SamplingParams b = a, c = a;
  b.seed = 2;
  c.choice = 1;
  int differ_b = 0, differ_c = 0, differ_position = 0;
  for (uint64_t i = 0; i < 50; ++i) {
    const int32_t token = sample(logits, a, i).token;
    EXPECT_EQ(token, sample(logits, a, i).token);
    differ_b += token != sample(logits, b, i).token;
    differ_c += token != sample(logits, c, i).token;
    differ_position += token != sample(logits, a, i + 1).token;
  }
  EXPECT_GT(differ_b, 40);
  EXPECT_GT(differ_c, 40);
  EXPECT_GT(differ_position, 40);
}

TEST(Sampler, GreedyTakesTheLowestOfEqualLogits) {
  SamplingParams p;
  p.temperature = 0.0f;
  const SampledToken out = sample({1.0f, 3.0f, 3.0f, -2.0f}, p);
  EXPECT_EQ(out.token, 1);
  EXPECT_EQ(out.temperature, 0.0f);
}

TEST(Sampler, TruncationsLeaveTheMostLikelyToken) {
  const std::vector<float> logits = random_logits(5000, 3, 4.0);
  const auto best = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  SamplingParams top_k, top_p, min_p;
  top_k.top_k = 1;
  top_p.top_p = 1e-6f;
  min_p.min_p = 1.0f;
  for (uint64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(sample(logits, top_k, i).token, best);
    EXPECT_EQ(sample(logits, top_p, i).token, best);
    EXPECT_EQ(sample(logits, min_p, i).token, best);
  }
}

TEST(Sampler, ThreadsDoNotChangeWhatIsDrawn) {
  for (const int64_t vocab : {49152, 49153, 151936}) {
    const std::vector<float> logits = random_logits(static_cast<size_t>(vocab), 5, 8.0);
    Sampler alone(vocab);
    for (const int threads : {2, 3}) {
      ThreadPool pool(threads);
      Sampler split(vocab, best_logit_fns(), &pool);
      for (uint64_t position = 0; position < 40; ++position) {
        SamplingParams params;
        params.temperature = position % 4 == 0 ? 0.0f : 0.25f * static_cast<float>(position % 8);
        params.top_p = position % 2 == 0 ? 1.0f : 0.9f;
        params.entropy = true;
        params.logprobs = 3;
        std::vector<float> a = logits, b = logits;
        SampledToken one, many;
        ASSERT_TRUE(alone.sample(a, params, nullptr, position, one).ok());
        ASSERT_TRUE(split.sample(b, params, nullptr, position, many).ok());
        EXPECT_EQ(one.token, many.token) << vocab << " " << threads << " " << position;
        EXPECT_EQ(one.entropy, many.entropy);
        EXPECT_EQ(one.logprob->logprob, many.logprob->logprob);
      }
    }
  }
}

TEST(Sampler, LogprobsAreOfTheRawLogits) {
  std::vector<float> logits{1.0f, 2.0f, 3.0f, 0.0f};
  SamplingParams p;
  p.temperature = 0.0f;
  p.logprobs = 2;
  p.logit_bias = {{3, 100.0f}};
  const SampledToken out = sample(logits, p);
  const double z = std::exp(1.0) + std::exp(2.0) + std::exp(3.0) + 1.0;
  EXPECT_EQ(out.token, 3);  // the bias decides the token
  ASSERT_TRUE(out.logprob.has_value());
  EXPECT_NEAR(out.logprob->logprob, -std::log(z), 1e-6);  // but not its log-probability
  ASSERT_EQ(out.top.size(), 2u);
  EXPECT_EQ(out.top[0].token, 2);
  EXPECT_EQ(out.top[1].token, 1);
  EXPECT_NEAR(out.top[0].logprob, 3.0 - std::log(z), 1e-6);
}

TEST(Sampler, TopLogprobsAreSortedAndTiesGoToLowerIds) {
  std::vector<float> logits = random_logits(3000, 9, 6.0);
  for (float& l : logits) l = std::round(l * 4.0f) / 4.0f;
  SamplingParams p;
  p.logprobs = 20;
  const SampledToken out = sample(logits, p);
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  ASSERT_EQ(out.top.size(), 20u);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(out.top[i].token, order[i]) << i;
}

TEST(Sampler, EntropyIsOfTheRawLogitsAndOnlyWhenAsked) {
  SamplingParams p;
  p.entropy = true;
  p.temperature = 0.1f;
  p.logit_bias = {{0, 50.0f}};
  EXPECT_NEAR(sample(std::vector<float>(8, 2.0f), p).entropy, std::log(8.0), 1e-6);
  p.entropy = false;
  EXPECT_EQ(sample(std::vector<float>(8, 2.0f), p).entropy, 0.0f);
}

TEST(Sampler, PenaltiesFollowTheirDefinitions) {
  TokenHistory history(6);
  history.add_prompt(0);
  history.add_prompt(1);
  history.add_generated(1);
  history.add_generated(2);
  history.add_generated(2);
  SamplingParams p;
  p.repetition_penalty = 2.0f;
  p.frequency_penalty = 0.5f;
  p.presence_penalty = 0.25f;
  std::vector<float> logits{4.0f, -4.0f, 4.0f, 4.0f, -4.0f, 0.0f};
  apply_penalties(p, history, logits);
  EXPECT_EQ(logits, (std::vector<float>{2.0f, -8.75f, 0.75f, 4.0f, -4.0f, 0.0f}));
  EXPECT_EQ(std::vector<int32_t>(history.seen().begin(), history.seen().end()), (std::vector<int32_t>{0, 1, 2}));
}

TEST(MarkerPenalty, MarkersAreTheWordsWithASpaceOrWithout) {
  for (const char* text : {"wait", " wait", " Wait", "Alternatively", " incorrect"})
    EXPECT_TRUE(is_marker(text)) << text;
  for (const char* text : {"", " ", "WAIT", "  wait", "waiting", "wai", "wait ", "the"})
    EXPECT_FALSE(is_marker(text)) << text;
}

TEST(MarkerPenalty, IsTakenFromTheMarkersAlone) {
  SamplingParams p;
  p.marker_penalty = 1.5f;
  p.marker_tokens = {1, 3};
  std::vector<float> logits{4.0f, -4.0f, 4.0f, 4.0f};
  apply_marker_penalty(p, logits);
  EXPECT_EQ(logits, (std::vector<float>{4.0f, -5.5f, 4.0f, 2.5f}));
}

TEST(MarkerPenalty, OffChangesNoBit) {
  SamplingParams off, on;
  off.seed = on.seed = 4;
  off.entropy = on.entropy = true;
  off.logprobs = on.logprobs = 3;
  on.marker_tokens = {0, 7, 299};
  int differ = 0;
  for (uint64_t position = 0; position < 40; ++position) {
    std::vector<float> a = random_logits(300, position, 8.0), b = a;
    Sampler sampler(300);
    SampledToken x, y;
    ASSERT_TRUE(sampler.sample(a, off, nullptr, position, x).ok());
    ASSERT_TRUE(sampler.sample(b, on, nullptr, position, y).ok());
    EXPECT_EQ(x.token, y.token);
    EXPECT_EQ(x.entropy, y.entropy);
    EXPECT_EQ(x.logprob->logprob, y.logprob->logprob);
    EXPECT_EQ(a, b);
    // And on, entropy and log-probabilities are still of the raw logits.
    SamplingParams strong = on;
    strong.marker_penalty = 100.0f;
    strong.marker_tokens.clear();
    for (int32_t t = 0; t < 300; t += 2) strong.marker_tokens.push_back(t);
    std::vector<float> c = random_logits(300, position, 8.0);
    ASSERT_TRUE(sampler.sample(c, strong, nullptr, position, y).ok());
    EXPECT_EQ(x.entropy, y.entropy);
    differ += x.token != y.token;
    EXPECT_EQ(y.token % 2, 1);
  }
  EXPECT_GT(differ, 10);
}

TEST(Sampler, BrokenLogitsAreAnErrorThatSaysWhere) {
  std::vector<float> logits(40, 0.0f);
  logits[39] = std::numeric_limits<float>::quiet_NaN();
  Sampler sampler(40);
  SampledToken out;
  const Status status = sampler.sample(logits, {}, nullptr, 17, out);
  EXPECT_EQ(status.code(), StatusCode::kInvalidData);
  EXPECT_NE(status.message().find("position 17"), std::string::npos) << status.message();
}

TEST(Sampler, ABannedVocabularyButOneStillDraws) {
  std::vector<float> logits(100, -std::numeric_limits<float>::infinity());
  logits[42] = -3.0f;
  EXPECT_EQ(sample(logits, {}).token, 42);
}

TEST(SamplingParams, WrongValuesAreNamed) {
  const auto message = [](auto change) {
    SamplingParams p;
    change(p);
    const Status status = check_sampling(p, 100);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.message();
  };
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_NE(message([&](SamplingParams& p) { p.temperature = nan; }).find("temperature"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.temperature = -1.0f; }).find("temperature"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.top_k = -1; }).find("top_k"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.top_p = 0.0f; }).find("top_p"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.min_p = 1.5f; }).find("min_p"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.repetition_penalty = 0.0f; }).find("repetition"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.logprobs = 21; }).find("logprobs"), std::string::npos);
  EXPECT_NE(message([](SamplingParams& p) { p.logit_bias = {{100, 1.0f}}; }).find("token 100"), std::string::npos);
  const auto markers = [](float penalty, std::vector<int32_t> tokens) {
    return [=](SamplingParams& p) {
      p.marker_penalty = penalty;
      p.marker_tokens = tokens;
    };
  };
  for (const float penalty : {-1.0f, 101.0f, nan})
    EXPECT_NE(message(markers(penalty, {1})).find("marker_penalty is"), std::string::npos);
  EXPECT_NE(message(markers(1, {})).find("needs marker_tokens"), std::string::npos);
  for (const auto& tokens : std::vector<std::vector<int32_t>>{{-1}, {100}, {2, 1}, {1, 1}})
    EXPECT_NE(message(markers(1, tokens)).find("not ascending ids from 0 to 99"), std::string::npos);
  EXPECT_TRUE(check_sampling({}, 100).ok());
}

}  // namespace
}  // namespace halfbyte
