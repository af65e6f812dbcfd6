// Intervals, summaries and the loop detector.
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "decode/loop_detector.h"
#include "eval/bootstrap.h"
#include "eval/evaluate.h"

namespace halfbyte {
namespace {

TEST(Bootstrap, AgreesWithTheNormalInterval) {
  std::vector<double> values;
  for (int i = 0; i < 501; ++i) values.push_back(i % 5 == 0 ? 0.0 : 1.0);
  const Interval interval = bootstrap_mean(values);
  double mean = 0;
  for (const double v : values) mean += v / 501;
  const double half = 1.96 * std::sqrt(mean * (1 - mean) / 501);
  EXPECT_NEAR(interval.mean, mean, 1e-12);
  EXPECT_NEAR(interval.low, mean - half, .1 * half);
  EXPECT_NEAR(interval.high, mean + half, .1 * half);
}

TEST(Bootstrap, SameSeedSameInterval) {
  const std::vector<double> values = {0, 1, .5, .25, 1, 0, 1};
  EXPECT_EQ(bootstrap_mean(values, 500, 3).low, bootstrap_mean(values, 500, 3).low);
  EXPECT_NE(bootstrap_mean(values, 500, 3).low, bootstrap_mean(values, 501, 4).high);
  EXPECT_EQ(bootstrap_mean(std::vector<double>{.5, .5}).high, .5);
  EXPECT_EQ(bootstrap_mean({}).mean, 0);
}

SampleResult sample(const char* answer, bool correct, int64_t reasoning) {
  SampleResult r;
  r.answer = answer;
  r.correct = correct;
  r.reasoning_tokens = reasoning;
  r.tokens = reasoning + 10;
  return r;
}

TEST(Summary, CountsQuestionsAndSamples) {
  std::vector<SampleResult> results = {sample("1", true, 10),  sample("2", false, 20), sample("1", true, 30),
                                       sample("5", false, 40), sample("5", false, 50), sample("6", true, 60),
                                       sample("7", true, 70)};
  results[4].truncated = true;
  const EvalSummary s = summarise(results, 3);
  EXPECT_EQ(s.questions, 2) << "the third is not whole";
  EXPECT_DOUBLE_EQ(s.accuracy.mean, .5);
  EXPECT_DOUBLE_EQ(s.majority, .5);
  EXPECT_DOUBLE_EQ(s.reasoning_tokens, 35);
  EXPECT_DOUBLE_EQ(s.tokens, 45);
  EXPECT_DOUBLE_EQ(s.truncated, 1.0 / 6);
  EXPECT_EQ(summarise({}, 3).questions, 0);
}

std::vector<int32_t> counting(int32_t from, int32_t count) {
  std::vector<int32_t> out;
  for (int32_t i = 0; i < count; ++i) out.push_back(from + i);
  return out;
}

std::vector<int32_t> repeated(int times, int32_t gap) {
  std::vector<int32_t> out;
  for (int t = 0; t < times; ++t) {
    for (const int32_t v : counting(0, 20)) out.push_back(v);
    for (const int32_t v : counting(1000 * (t + 1), gap)) out.push_back(v);
  }
  return out;
}

TEST(LoopDetector, FourTimesTwentyWithinAThousand) {
  EXPECT_FALSE(has_loop(counting(0, 3000)));
  EXPECT_FALSE(has_loop(repeated(3, 50)));
  EXPECT_TRUE(has_loop(repeated(4, 50)));
  EXPECT_TRUE(has_loop(repeated(4, 314)));   // 3 * 334 + 20 = 1022 tokens
  EXPECT_FALSE(has_loop(repeated(4, 315)));  // 1025
  EXPECT_TRUE(has_loop(std::vector<int32_t>(23, 7)));
  EXPECT_FALSE(has_loop(std::vector<int32_t>(22, 7)));
  EXPECT_FALSE(has_loop({}));
}

// What stops a generation: asked after each token, it is true first where has_loop() of all so far is.
TEST(LoopDetector, TheEndOfALoopIsFoundAtTheFirstTokenThatMakesOne) {
  const auto first_end = [](const std::vector<int32_t>& tokens) {
    for (size_t n = 0; n <= tokens.size(); ++n)
      if (ends_in_loop(std::span(tokens).first(n))) return n;
    return size_t{0};
  };
  const auto first_loop = [](const std::vector<int32_t>& tokens) {
    for (size_t n = 0; n <= tokens.size(); ++n)
      if (has_loop(std::span(tokens).first(n))) return n;
    return size_t{0};
  };
  EXPECT_EQ(first_end(counting(0, 1500)), 0u);
  EXPECT_EQ(first_end(repeated(3, 50)), 0u);
  EXPECT_EQ(first_end(repeated(4, 50)), 230u);
  EXPECT_EQ(first_end(repeated(4, 314)), 1022u);
  EXPECT_EQ(first_end(repeated(4, 315)), 0u);
  EXPECT_EQ(first_end(std::vector<int32_t>(30, 7)), 23u);
  int loops = 0;
  for (uint64_t round = 0; round < 30; ++round) {
    std::vector<int32_t> tokens;  // of two letters, with stretches of a short period
    for (uint64_t i = 0; i < 250; ++i) {
      const bool periodic = i % 100 > 30;
      const auto at = static_cast<uint32_t>(periodic ? i % (3 + 4 * (round % 15)) : i);
      tokens.push_back(static_cast<int32_t>(philox_draw(round, periodic, at) & 1));
    }
    ASSERT_EQ(first_end(tokens), first_loop(tokens)) << round;
    loops += first_end(tokens) > 0;
  }
  EXPECT_GT(loops, 8);
  EXPECT_LT(loops, 30);
}

TEST(LoopDetector, FindsALoopAmongOthersFarApart) {
  std::vector<int32_t> tokens = counting(0, 20);
  for (const int32_t v : counting(100'000, 5000)) tokens.push_back(v);
  for (const int32_t v : repeated(4, 5)) tokens.push_back(v);
  EXPECT_TRUE(has_loop(tokens));
}

}  // namespace
TEST(Summary, ChangeIsPairedByQuestion) {
  // Accuracies differ much between questions, the change by one sample of four in every question.
  std::vector<SampleResult> base, changed;
  for (int i = 0; i < 40 * 4; ++i) {
    const int question = i / 4, sample = i % 4;
    SampleResult r;
    r.correct = sample < question % 4;
    base.push_back(r);
    r.correct = sample < question % 4 + 1;
    changed.push_back(r);
  }
  const Interval change = accuracy_change(base, changed, 4);
  EXPECT_EQ(change.mean, .25);
  EXPECT_EQ(change.low, .25);
  EXPECT_EQ(change.high, .25);
  EXPECT_EQ(accuracy_change(base, base, 4).high, 0);
  EXPECT_LT(summarise(base, 4).accuracy.low, summarise(base, 4).accuracy.mean - .05);
}

}  // namespace halfbyte
