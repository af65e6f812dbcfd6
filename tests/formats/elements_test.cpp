// Every code point of every element format, and every tie, against an oracle that only knows the list of values.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "formats/bf16.h"
#include "formats/e1m2.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/e8m0.h"
#include "formats/f16.h"
#include "formats/int_group.h"

namespace halfbyte {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Checks encode() at every magnitude code of a format whose code 0..last are its values in rising order: at the value
// itself, at the midpoint to the next (even code wins), and one FP32 step to either side of the midpoint.
template <class Encode, class Decode>
void check_rounding(unsigned last, unsigned sign_bit, Encode encode, Decode decode) {
  for (unsigned code = 0; code < last; ++code) {
    const double low = decode(code), high = decode(code + 1);
    ASSERT_LT(low, high) << code;
    const float middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(static_cast<double>(middle), (low + high) / 2) << "the midpoint is an FP32: " << code;
    const unsigned even = code % 2 == 0 ? code : code + 1;
    EXPECT_EQ(encode(static_cast<float>(low)), code);
    EXPECT_EQ(encode(middle), even);
    EXPECT_EQ(encode(std::nextafter(middle, -kInf)), code);
    EXPECT_EQ(encode(std::nextafter(middle, kInf)), code + 1);
    if (sign_bit == 0) continue;
    EXPECT_EQ(encode(-std::nextafter(middle, kInf)), sign_bit | (code + 1));
    if (code != 0) {
      EXPECT_EQ(encode(static_cast<float>(-low)), sign_bit | code);
      EXPECT_EQ(encode(std::nextafter(-middle, kInf)), sign_bit | code);
    }
    if (even != 0) {
      EXPECT_EQ(encode(-middle), sign_bit | even);
    }
  }
  EXPECT_EQ(encode(static_cast<float>(decode(last))), last);
}

TEST(E2M1, Values) {
  const float values[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (uint8_t i = 0; i < 8; ++i) {
    EXPECT_EQ(E2M1::decode(i), values[i]);
    EXPECT_EQ(E2M1::decode(i | 8), -values[i]);
    EXPECT_EQ(E2M1::decode_doubled(i), static_cast<int>(2 * values[i]));
    EXPECT_EQ(E2M1::decode_doubled(i | 8), -static_cast<int>(2 * values[i]));
  }
  EXPECT_TRUE(std::signbit(E2M1::decode(8)));
}

TEST(E2M1, Rounding) {
  check_rounding(7, 8, E2M1::encode, [](unsigned c) { return E2M1::decode(static_cast<uint8_t>(c)); });
  const float borders[7] = {.25f, .75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f};
  const int at_border[7] = {0, 2, 2, 4, 4, 6, 6};
  for (int i = 0; i < 7; ++i) EXPECT_EQ(E2M1::encode(borders[i]), at_border[i]) << borders[i];
}

TEST(E2M1, EdgesAndNan) {
  EXPECT_EQ(E2M1::encode(1e30f), 7);
  EXPECT_EQ(E2M1::encode(kInf), 7);
  EXPECT_EQ(E2M1::encode(-kInf), 15);
  EXPECT_EQ(E2M1::encode(kNan), 7);
  EXPECT_EQ(E2M1::encode(-kNan), 7);
  for (float zero : {0.0f, -0.0f, -0.25f, -0.1f, -1e-45f}) EXPECT_EQ(E2M1::encode(zero), 0) << zero;
}

TEST(E2M1, Packing) {
  const uint8_t row[2] = {E2M1::pack(3, 12), E2M1::pack(15, 1)};
  EXPECT_EQ(row[0], 0xC3);
  const int expected[4] = {3, 12, 15, 1};
  for (int i = 0; i < 4; ++i) EXPECT_EQ(E2M1::unpack(row, i), expected[i]);
}

TEST(E1M2, ValuesAndRounding) {
  for (uint8_t i = 0; i < 8; ++i) EXPECT_EQ(E1M2::decode(i), 0.5f * i);
  check_rounding(7, 8, E1M2::encode, [](unsigned c) { return E1M2::decode(static_cast<uint8_t>(c)); });
  EXPECT_EQ(E1M2::encode(100.0f), 7);
  EXPECT_EQ(E1M2::encode(-kInf), 15);
  EXPECT_EQ(E1M2::encode(kNan), 7);
  EXPECT_EQ(E1M2::encode(-0.25f), 0);
}

TEST(E4M3, Values) {
  for (int code = 0; code < 256; ++code) {
    const int e = code >> 3 & 15, m = code & 7;
    const float v = E4M3::decode(static_cast<uint8_t>(code));
    if ((code & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(v));
      EXPECT_TRUE(E4M3::is_nan_code(static_cast<uint8_t>(code)));
      continue;
    }
    const double expected = e == 0 ? std::ldexp(m / 8.0, -6) : std::ldexp(1 + m / 8.0, e - 7);
    EXPECT_EQ(v, code < 128 ? expected : -expected);
    EXPECT_EQ(std::signbit(v), code >= 128);
    EXPECT_EQ(E4M3::encode(v), code);
  }
  EXPECT_EQ(E4M3::decode(E4M3::kOne), 1.0f);
}

TEST(E4M3, Rounding) {
  check_rounding(0x7E, 0x80, E4M3::encode, [](unsigned c) { return E4M3::decode(static_cast<uint8_t>(c)); });
  for (float large : {448.0f, 449.0f, 464.0f, 465.0f, 1e30f, kInf}) EXPECT_EQ(E4M3::encode(large), 0x7E) << large;
  EXPECT_EQ(E4M3::encode(-kInf), 0xFE);
  EXPECT_EQ(E4M3::encode(kNan), 0x7F);
  EXPECT_EQ(E4M3::encode(0.0f), 0);
  EXPECT_EQ(E4M3::encode(-0.0f), 0x80);
  EXPECT_EQ(E4M3::encode(1e-45f), 0);
}

TEST(E8M0, Values) {
  for (int code = 0; code < 255; ++code) {
    EXPECT_EQ(E8M0::decode(static_cast<uint8_t>(code)), std::ldexp(1.0f, code - 127));
    EXPECT_EQ(E8M0::from_exponent(code - 127), code);
  }
  EXPECT_TRUE(std::isnan(E8M0::decode(255)));
  EXPECT_EQ(E8M0::from_exponent(-200), 0);
  EXPECT_EQ(E8M0::from_exponent(200), 254);
}

TEST(BF16, Exhaustive) {
  for (unsigned code = 0; code < 0x10000; ++code) {
    const float v = BF16::decode(static_cast<uint16_t>(code));
    if (std::isnan(v)) {
      EXPECT_EQ(BF16::encode(v), code | 0x40);
    } else {
      ASSERT_EQ(BF16::encode(v), code);
    }
  }
  check_rounding(0x7F7F, 0, BF16::encode, [](unsigned c) { return BF16::decode(static_cast<uint16_t>(c)); });
  EXPECT_EQ(BF16::encode(std::numeric_limits<float>::max()), 0x7F80);
  EXPECT_EQ(BF16::encode(-1.00390625f), 0xBF80);  // a tie, to even
  // A NaN whose payload lies in the dropped bits must not turn into infinity.
  EXPECT_TRUE(std::isnan(BF16::round(bits_float(0x7F800001u))));
}

TEST(F16, Exhaustive) {
  for (unsigned code = 0; code < 0x10000; ++code) {
    const float v = F16::decode(static_cast<uint16_t>(code));
    const unsigned e = code >> 10 & 31, m = code & 0x3FF;
    if (e == 31 && m != 0) {
      EXPECT_TRUE(std::isnan(v));
      EXPECT_EQ(F16::encode(v), code | 0x200);
      continue;
    }
    const double magnitude = e == 31  ? std::numeric_limits<double>::infinity()
                             : e == 0 ? std::ldexp(m, -24)
                                      : std::ldexp(1024.0 + m, static_cast<int>(e) - 25);
    ASSERT_EQ(v, code < 0x8000 ? magnitude : -magnitude) << code;
    ASSERT_EQ(F16::encode(v), code);
  }
  check_rounding(0x7BFF, 0x8000, F16::encode, [](unsigned c) { return F16::decode(static_cast<uint16_t>(c)); });
  EXPECT_EQ(F16::encode(65519.996f), 0x7BFF);
  EXPECT_EQ(F16::encode(65520.0f), 0x7C00);
  EXPECT_EQ(F16::encode(-0.0f), 0x8000);
}

TEST(Rounding, Exponents) {
  for (int e = -149; e <= 127; ++e) {
    const float p = power_of_two(e);
    ASSERT_EQ(p, std::ldexp(1.0f, e));
    ASSERT_EQ(floor_log2(p), e);
    ASSERT_EQ(significand_fraction(p), 0u);
    if (e > -148) {
      ASSERT_EQ(significand_fraction(1.5f * p), 0x400000u) << e;
    }
    if (e < 127 && e > -149) {
      ASSERT_EQ(floor_log2(std::nextafter(2 * p, 0.0f)), e);
    }
  }
  for (float x : {0.5f, 1.5f, 2.5f, -0.5f, -2.5f, 7.49f, 100.5f}) EXPECT_EQ(round_even(x), std::nearbyint(x)) << x;
}

TEST(Rounding, AmaxNeverLosesNan) {
  const float x[4] = {1, kNan, -kInf, 3};
  EXPECT_TRUE(std::isnan(abs_max(x, 4)));
  EXPECT_EQ(abs_max(x + 2, 2), kInf);
  EXPECT_EQ(abs_max(x, 1), 1.0f);
  EXPECT_EQ(abs_max(x, 0), 0.0f);
}

// By hand: range [-3, 12] in 15 steps of 1, zero at 3; 0.5 and 2.5 go to the even integer.
TEST(IntGroups, FourBitsByHand) {
  std::vector<float> row(130, 0.0f);
  const std::vector<float> first{-3, 12, 0.5f, 1.5f, 2.5f, -0.6f, 11.4f};
  std::copy(first.begin(), first.end(), row.begin());
  row[128] = 7.0f;  // another group: range [0, 7]
  row[129] = 3.4f;
  round_int_groups(row, 4);
  EXPECT_EQ(std::vector<float>(row.begin(), row.begin() + 8), (std::vector<float>{-3, 12, 0, 2, 2, -1, 11, 0}));
  EXPECT_FLOAT_EQ(row[128], 7.0f);
  EXPECT_FLOAT_EQ(row[129], 7 * 7.0f / 15);
}

TEST(IntGroups, ThreeBitsHaveEightValuesAndZeroStays) {
  std::vector<float> row(128);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<float>(i) * .37f - 11;
  row[5] = 0;
  round_int_groups(row, 3);
  EXPECT_EQ(row[5], 0.0f);
  EXPECT_EQ(std::set<float>(row.begin(), row.end()).size(), 8u);
  std::vector<float> zeros(128, 0.0f);
  round_int_groups(zeros, 3);
  EXPECT_EQ(zeros, std::vector<float>(128, 0.0f));
}

static_assert(E2M1::encode(2.6f) == 5 && E4M3::encode(448.0f) == 0x7E && F16::encode(1.0f) == 0x3C00);

}  // namespace
}  // namespace halfbyte
