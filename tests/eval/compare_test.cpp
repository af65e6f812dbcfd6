#include "eval/compare.h"

#include <gtest/gtest.h>

#include <cmath>

#include "eval/text_shape.h"

namespace halfbyte {
namespace {

SampleResult sample(const std::string& id, int64_t number, bool correct, int64_t reasoning, int64_t tokens) {
  SampleResult r;
  r.id = id;
  r.sample = number;
  r.correct = correct;
  r.reasoning_tokens = reasoning;
  r.tokens = tokens;
  return r;
}

TEST(Compare, PairsSamplesByQuestionAndNumber) {
  const std::vector<SampleResult> reference{sample("a", 0, true, 100, 110), sample("a", 1, true, 100, 110),
                                            sample("b", 0, false, 200, 210), sample("c", 0, true, 1, 1)};
  // In another order, without "c", with one more.
  const std::vector<SampleResult> other{sample("b", 0, true, 300, 310), sample("a", 1, false, 150, 160),
                                        sample("a", 0, true, 50, 60), sample("d", 0, true, 9, 9)};
  const auto c = compare_results(reference, other, 2000);
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_EQ(c->questions, 2);
  EXPECT_EQ(c->samples, 3);
  EXPECT_DOUBLE_EQ(c->change.mean, (-.5 + 1) / 2);
  EXPECT_DOUBLE_EQ(c->change.low, -.5);
  EXPECT_DOUBLE_EQ(c->change.high, 1);
  EXPECT_DOUBLE_EQ(c->ctir->mean, (100.0 + 300) / (100 + 200));  // means a question
  EXPECT_DOUBLE_EQ(*c->paired_ratio, (.5 + 1.5 + 1.5) / 3);
  EXPECT_DOUBLE_EQ(c->tokens_saved.mean, 1 - (110.0 + 310) / (110 + 210));
  EXPECT_LE(c->tokens_saved.low, c->tokens_saved.mean);
  EXPECT_DOUBLE_EQ(c->reference.accuracy, 2.0 / 3);
  ASSERT_EQ(c->by_length.size(), 3u);
  EXPECT_EQ(c->by_length.back().from, 200);
  EXPECT_DOUBLE_EQ(c->by_length.back().other, 1);
}

TEST(Compare, NobodyWhoReasonsHasNoRatio) {
  const auto c =
      compare_results(std::vector{sample("a", 0, true, 0, 10)}, std::vector{sample("a", 0, true, 5, 20)}, 100);
  ASSERT_TRUE(c.ok());
  EXPECT_FALSE(c->ctir || c->paired_ratio);
  EXPECT_DOUBLE_EQ(c->tokens_saved.mean, -1);
  const auto back =
      compare_results(std::vector{sample("a", 0, true, 5, 20)}, std::vector{sample("a", 0, true, 0, 10)}, 100);
  ASSERT_TRUE(back.ok());
  EXPECT_TRUE(back->ctir && back->paired_ratio);
}

TEST(Compare, FilesThatShareNothingAreRefused) {
  const auto c = compare_results(std::vector{sample("a", 0, true, 1, 1)}, std::vector{sample("a", 1, true, 1, 1)});
  EXPECT_FALSE(c.ok());
}

TEST(Compare, TheRatioOfMeansHasAnIntervalOfItsOwn) {
  const std::vector<double> twice{2, 4, 6}, once{1, 2, 3};
  const Interval exact = bootstrap_ratio(twice, once, 500);
  EXPECT_DOUBLE_EQ(exact.mean, 2);
  EXPECT_DOUBLE_EQ(exact.low, 2);
  EXPECT_DOUBLE_EQ(exact.high, 2);
  const Interval wide = bootstrap_ratio(std::vector<double>{1, 9}, std::vector<double>{1, 1}, 500);
  EXPECT_DOUBLE_EQ(wide.low, 1);
  EXPECT_DOUBLE_EQ(wide.high, 9);
  EXPECT_EQ(bootstrap_ratio(once, std::vector<double>{0, 0, 0}, 500).mean, 0);
}

TEST(Compare, CtirOverTasksIsThePlainMeanWithAnIntervalAroundIt) {
  // One task of long texts whose ratio is 1, one of short texts whose ratio is 2: pooled the ratio would be near 1.
  std::vector<SampleResult> long_before, long_after, short_before, short_after;
  for (int i = 0; i < 40; ++i) {
    const std::string id = std::to_string(i);
    const int64_t noise = i % 5;
    long_before.push_back(sample(id, 0, true, 1000 + noise, 1010));
    long_after.push_back(sample(id, 0, true, 1004 - noise, 1010));
    short_before.push_back(sample(id, 0, true, 10, 20));
    short_after.push_back(sample(id, 0, true, 18 + noise, 30));
  }
  const std::vector<TaskFiles> tasks{{long_before, long_after}, {short_before, short_after}};
  const auto ctir = mean_ctir(tasks, 2000);
  ASSERT_TRUE(ctir.ok());
  EXPECT_NEAR(ctir->mean, 1.5, 1e-3);
  EXPECT_LT(ctir->low, 1.5);
  EXPECT_GT(ctir->high, 1.5);
  EXPECT_NEAR(ctir->high - ctir->low, 2 * 1.96 * .1414 / std::sqrt(40.0) / 2, .01);  // of the short task's, halved
  EXPECT_FALSE(mean_ctir(std::vector<TaskFiles>{{long_before, {}}}).ok());
}

TEST(TextShape, StepsRepetitionAndLikeness) {
  const StepClasses classes{0, 0, 0, 0, 0, 0, 1, 2};  // 6: a newline, 7: a blank line
  const std::vector<int32_t> text{0, 1, 2, 3, 7, 7, 0, 1, 2, 3, 4, 6, 6, 5};
  const TextShape shape = text_shape(text, classes);
  EXPECT_EQ(shape.steps, 3);
  EXPECT_DOUBLE_EQ(shape.repeated, 1.0 / 4);  // 0123 | 0123 again, 1234, 2 3 4 newline | none
  EXPECT_NEAR(shape.alike, (4 / (2 * std::sqrt(6.0)) + 0) / 2, 1e-12);
  EXPECT_EQ(text_shape({}, classes).steps, 0);
}

TEST(Compare, AServingPenaltyIsTokensOverTheirRate) {
  Comparison c;
  c.reference.tokens = 200;
  c.other.tokens = 300;
  EXPECT_DOUBLE_EQ(*serving_penalty(c, 1000, 1000), 1.5);
  EXPECT_DOUBLE_EQ(*serving_penalty(c, 1000, 1500), 1.0) << "half as fast again for half as much again";
  EXPECT_FALSE(serving_penalty(c, 0, 1000) || serving_penalty(c, 1000, 0));
}

}  // namespace
}  // namespace halfbyte
