// ReSET against the numpy definition's stored decisions, bit for bit; its place in the sampler.
#include "decode/reset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "decode/sampler.h"
#include "support/golden_file.h"

namespace halfbyte {
namespace {

using testing::GoldenFile;
using ::testing::HasSubstr;

TemperaturePolicy policy_of(const GoldenFile& g, const std::string& name) {
  TemperaturePolicy p;
  p.rule = TemperatureRule::kReset;
  p.window = g.scalar<int32_t>(name + "/window");
  p.tau0 = g.scalar<double>(name + "/tau0");
  p.t_low = static_cast<float>(g.scalar<double>(name + "/t_low"));
  p.t_high = static_cast<float>(g.scalar<double>(name + "/t_high"));
  return p;
}

// "hand" is the table of 20 tokens that tests/reference/reset_test.py works through.
TEST(Reset, DecidesAsTheDefinition) {
  const GoldenFile g = GoldenFile::open_topic("reset");
  for (const char* name : {"hand", "short_window", "default"}) {
    const std::string at = name;
    const auto entropy = g.get<double>(at + "/entropy");
    const auto classes = g.get<int32_t>(at + "/class_of_token");
    const auto boundary = g.get<uint8_t>(at + "/boundary"), uncertain = g.get<uint8_t>(at + "/uncertain");
    const auto temperature = g.get<float>(at + "/temperature");
    const auto h_step = g.get<double>(at + "/h_step"), h_bar = g.get<double>(at + "/h_bar");
    TemperatureState state(policy_of(g, at));
    for (size_t t = 0; t < entropy.size(); ++t) {
      const TemperatureChoice c = state.next(entropy[t]);
      ASSERT_EQ(c.temperature, temperature[t]) << at << " " << t;
      ASSERT_EQ(c.step_mean, h_step[t]) << at << " " << t;
      ASSERT_EQ(c.running_mean, h_bar[t]) << at << " " << t;
      ASSERT_EQ(c.uncertain, uncertain[t] != 0) << at << " " << t;
      ASSERT_EQ(c.boundary, boundary[t] != 0) << at << " " << t;
      state.accept(static_cast<uint8_t>(classes[t]));
    }
  }
}

TEST(Reset, ChecksItsFields) {
  TemperaturePolicy p;
  p.window = 0;
  EXPECT_TRUE(check_policy(p).ok()) << "a policy that is off";
  p.rule = TemperatureRule::kReset;
  EXPECT_THAT(check_policy(p).message(), HasSubstr("window is 0, expected 1 to 4096"));
  p.window = 32;
  p.tau0 = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(check_policy(p).message(), HasSubstr("tau0 is nan, expected 0 to 100"));
  p.tau0 = 0.5;
  p.t_low = -1;
  EXPECT_THAT(check_policy(p).message(), HasSubstr("t_low is -1"));
  EXPECT_THAT(parse_temperature_rule("hot").status().message(),
              HasSubstr("fixed, reset, token, window, step, low-step"));
  EXPECT_EQ(*parse_temperature_rule("low-step"), TemperatureRule::kLowStep);
}

SampledToken sample(const SamplingParams& params, TemperatureState* policy) {
  std::vector<float> logits = {2.0f, 1.5f, 1.0f, -1.0f, 0.25f};
  Sampler sampler(static_cast<int64_t>(logits.size()));
  SampledToken out;
  EXPECT_TRUE(sampler.sample(logits, params, nullptr, 11, out, policy).ok());
  return out;
}

TEST(Reset, TakesThePlaceOfTheTemperature) {
  SamplingParams params;
  params.temperature = 0;
  params.policy = {.rule = TemperatureRule::kToken, .tau0 = 0.1, .t_low = 0, .t_high = 0.7f};
  TemperatureState hot(params.policy);
  const SampledToken by_policy = sample(params, &hot);
  EXPECT_EQ(by_policy.temperature, 0.7f);
  ASSERT_TRUE(by_policy.choice.has_value());
  EXPECT_EQ(by_policy.choice->step_mean, static_cast<double>(by_policy.entropy));
  SamplingParams fixed;
  fixed.temperature = 0.7f;
  EXPECT_EQ(by_policy.token, sample(fixed, nullptr).token);
  // t_low of 0 is greedy.
  params.policy.tau0 = 50;
  params.temperature = 5;
  TemperatureState cold(params.policy);
  const SampledToken greedy = sample(params, &cold);
  EXPECT_EQ(greedy.temperature, 0.0f);
  EXPECT_EQ(greedy.token, 0);
}

// The entropy is of the raw logits: a bias that leaves one token does not make the policy think it certain.
TEST(Reset, LooksAtRawLogits) {
  SamplingParams params;
  params.policy = {.rule = TemperatureRule::kToken, .tau0 = 0.5};
  params.logit_bias = {{3, 100.0f}};
  TemperatureState state(params.policy);
  const SampledToken out = sample(params, &state);
  EXPECT_EQ(out.token, 3);
  EXPECT_GT(out.entropy, 1.0f);
  EXPECT_EQ(out.temperature, 1.0f);
}

}  // namespace
}  // namespace halfbyte
