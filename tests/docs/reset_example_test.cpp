// The worked example of docs/reset.md; docs_test.py holds the page and this file equal.
#include "decode/reset.h"

#include <gtest/gtest.h>

namespace halfbyte {
namespace {

TEST(ResetPage, WorkedExample) {
  // docs/reset.md: begin
  TemperaturePolicy policy;
  policy.rule = TemperatureRule::kReset;
  policy.tau0 = 0.75;
  policy.t_low = 0.25f;
  policy.window = 4;
  TemperatureState state(policy);

  // Nothing is known yet: the step counts as confident, and 0.5 < tau0.
  EXPECT_EQ(state.next(0.5).temperature, 0.25f);
  // Both means are 0.5: confident; 1.0 >= tau0.
  EXPECT_EQ(state.next(1.0).temperature, 1.0f);
  EXPECT_EQ(state.next(0.0).temperature, 0.25f);
  EXPECT_EQ(state.next(2.0).temperature, 1.0f);
  EXPECT_EQ(state.next(1.0).temperature, 1.0f);
  EXPECT_EQ(state.next(0.25).temperature, 0.25f);

  // The last token held a blank line: a step begins. It has no entropies of its own, so the window speaks for it:
  // 0, 2, 1, 0.25 have the mean 0.8125, above the mean of all so far, 4.75 / 6: an uncertain step. There, 0.5 is low.
  state.accept(/*step_class=*/2);
  const TemperatureChoice first = state.next(0.5);
  EXPECT_TRUE(first.boundary && first.uncertain);
  EXPECT_EQ(first.threshold, 0.8125);
  EXPECT_EQ(first.temperature, 0.25f);
  EXPECT_EQ(state.next(3.0).temperature, 1.0f);
  // docs/reset.md: end
}

}  // namespace
}  // namespace halfbyte
