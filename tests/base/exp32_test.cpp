#include "base/exp32.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace halfbyte {
namespace {

static_assert(exp32(0.0f) == 1.0f, "usable at compile time");

TEST(Exp32, EdgeValues) {
  EXPECT_EQ(exp32(0.0f), 1.0f);
  EXPECT_EQ(exp32(-0.0f), 1.0f);
  EXPECT_EQ(exp32(std::nextafter(-87.0f, -88.0f)), 0.0f);
  EXPECT_GT(exp32(-87.0f), std::numeric_limits<float>::min());
  EXPECT_EQ(exp32(-std::numeric_limits<float>::infinity()), 0.0f);
  EXPECT_EQ(exp32(std::numeric_limits<float>::lowest()), 0.0f);
  EXPECT_TRUE(std::isnan(exp32(std::numeric_limits<float>::quiet_NaN())));
  EXPECT_EQ(exp32(-std::numeric_limits<float>::denorm_min()), 1.0f);
}

// Every 997th float of [-87, 0]: a million values.
TEST(Exp32, RelativeErrorBelowItsBound) {
  double worst = 0;
  float worst_x = 0;
  const uint32_t last = std::bit_cast<uint32_t>(87.0f);
  for (uint32_t bits = 0; bits <= last; bits += 997) {
    const float x = -std::bit_cast<float>(bits);
    const double truth = std::exp(static_cast<double>(x));
    const double error = std::abs(static_cast<double>(exp32(x)) / truth - 1);
    if (error > worst) {
      worst = error;
      worst_x = x;
    }
  }
  EXPECT_LT(worst, 0x1p-22) << "at x = " << worst_x;
  EXPECT_GT(worst, 0x1p-26) << "the comparison itself must see rounding errors";
}

TEST(Exp32, NeverAboveOneBelowZero) {
  for (uint32_t bits = 0; bits <= std::bit_cast<uint32_t>(2.0f); bits += 1013) {
    ASSERT_LE(exp32(-std::bit_cast<float>(bits)), 1.0f) << std::bit_cast<float>(bits);
  }
}

// The definition in docs/numerics.md written with the library's own rint and ldexp.
float plain_exp32(float x) {
  const float n = std::rint(x * 1.44269504f);
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  const float p = (((((1.9875691500e-4f * r + 1.3981999507e-3f) * r + 8.3334519073e-3f) * r + 4.1665795894e-2f) * r +
                    1.6666665459e-1f) *
                       r +
                   5.0000001201e-1f);
  return std::ldexp(p * (r * r) + r + 1.0f, static_cast<int>(n));
}

TEST(Exp32, BitEqualToTheDefinition) {
  for (uint32_t bits = 0; bits <= std::bit_cast<uint32_t>(87.0f); bits += 1009) {
    const float x = -std::bit_cast<float>(bits);
    ASSERT_EQ(std::bit_cast<uint32_t>(exp32(x)), std::bit_cast<uint32_t>(plain_exp32(x))) << x;
  }
}

}  // namespace
}  // namespace halfbyte
