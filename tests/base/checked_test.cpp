#include "base/checked.h"

#include <gtest/gtest.h>

namespace halfbyte {
namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

TEST(Checked, MulAndAddAtTheEdges) {
  EXPECT_EQ(checked_mul(kMax, 1), kMax);
  EXPECT_EQ(checked_mul(kMax, 0), 0u);
  EXPECT_FALSE(checked_mul(kMax, 2));
  EXPECT_FALSE(checked_mul(uint64_t{1} << 32, uint64_t{1} << 32));
  EXPECT_EQ(checked_mul(uint64_t{1} << 32, (uint64_t{1} << 32) - 1), kMax - 0xFFFFFFFFu);
  EXPECT_EQ(checked_add(kMax, 0), kMax);
  EXPECT_FALSE(checked_add(kMax, 1));
}

TEST(Checked, CastExhaustiveOverSmallTypes) {
  for (int v = -70000; v <= 70000; ++v) {
    EXPECT_EQ(checked_cast<int8_t>(v).has_value(), v >= -128 && v <= 127) << v;
    EXPECT_EQ(checked_cast<uint8_t>(v).has_value(), v >= 0 && v <= 255) << v;
    EXPECT_EQ(checked_cast<uint16_t>(v).has_value(), v >= 0 && v <= 65535) << v;
    if (const auto u = checked_cast<uint16_t>(v)) {
      EXPECT_EQ(*u, v);
    }
  }
}

TEST(Checked, CastBetweenSigns) {
  EXPECT_FALSE(checked_cast<int64_t>(kMax));
  EXPECT_FALSE(checked_cast<uint64_t>(int64_t{-1}));
  EXPECT_FALSE(checked_cast<int32_t>(uint32_t{0x80000000u}));
  EXPECT_EQ(checked_cast<int64_t>(kMax / 2), std::numeric_limits<int64_t>::max());
}

}  // namespace
}  // namespace halfbyte
