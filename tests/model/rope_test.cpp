// RoPE rules against the formulas written out, at the dimensions where they differ. tests/parity holds whole models
// with each rule against transformers.
#include "model/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace halfbyte {
namespace {

RopeFacts facts(RopeKind kind, double theta) {
  RopeFacts f;
  f.kind = kind;
  f.theta = theta;
  return f;
}

TEST(Rope, DefaultFrequenciesAreAGeometricSeries) {
  const Rope rope(facts(RopeKind::kDefault, 10000.0), 128, 4096);
  ASSERT_EQ(rope.inverse_frequencies().size(), 64u);
  EXPECT_EQ(rope.inverse_frequencies()[0], 1.0);
  EXPECT_NEAR(rope.inverse_frequencies()[32], 0.01, 1e-15);
  EXPECT_NEAR(rope.inverse_frequencies()[63], std::pow(10000.0, -126.0 / 128.0), 1e-18);
  EXPECT_EQ(rope.attention_factor(), 1.0);
}

TEST(Rope, AnglesAreMadeInDoublePrecision) {
  const Rope rope(facts(RopeKind::kDefault, 1e6), 128, 40960);
  std::vector<float> cos(64), sin(64);
  const int64_t position = 39999;
  rope.angles(position, cos, sin);
  for (size_t i = 0; i < 64; ++i) {
    const double angle = 39999.0 * std::pow(1e6, -2.0 * static_cast<double>(i) / 128.0);
    EXPECT_EQ(cos[i], static_cast<float>(std::cos(angle))) << i;
    EXPECT_EQ(sin[i], static_cast<float>(std::sin(angle))) << i;
  }
}

TEST(Rope, LinearDividesEveryFrequency) {
  RopeFacts f = facts(RopeKind::kLinear, 10000.0);
  f.factor = 4.0;
  const Rope linear(f, 64, 2048), plain(facts(RopeKind::kDefault, 10000.0), 64, 2048);
  for (size_t i = 0; i < 32; ++i) EXPECT_EQ(linear.inverse_frequencies()[i], plain.inverse_frequencies()[i] / 4.0) << i;
}

TEST(Rope, GgufFactorsDivideEachFrequency) {
  RopeFacts f = facts(RopeKind::kDefault, 10000.0);
  f.frequency_factors.assign(32, 1.0f);
  f.frequency_factors[31] = 8.0f;
  const Rope rope(f, 64, 2048), plain(facts(RopeKind::kDefault, 10000.0), 64, 2048);
  EXPECT_EQ(rope.inverse_frequencies()[30], plain.inverse_frequencies()[30]);
  EXPECT_EQ(rope.inverse_frequencies()[31], plain.inverse_frequencies()[31] / 8.0);
}

TEST(Rope, Llama3KeepsShortWavesStretchesLongOnesAndBlendsBetween) {
  RopeFacts f = facts(RopeKind::kLlama3, 500000.0);
  f.factor = 8.0;
  f.low_freq_factor = 1.0;
  f.high_freq_factor = 4.0;
  f.original_max_position = 8192;
  const Rope rope(f, 128, 131072), plain(facts(RopeKind::kDefault, 500000.0), 128, 131072);
  int kept = 0, stretched = 0, blended = 0;
  for (size_t i = 0; i < 64; ++i) {
    const double old = plain.inverse_frequencies()[i], now = rope.inverse_frequencies()[i];
    const double wavelength = 2.0 * std::numbers::pi / old;
    if (wavelength < 2048.0) {
      EXPECT_EQ(now, old) << i;
      ++kept;
    } else if (wavelength > 8192.0) {
      EXPECT_EQ(now, old / 8.0) << i;
      ++stretched;
    } else {
      const double smooth = (8192.0 / wavelength - 1.0) / 3.0;
      EXPECT_NEAR(now, old * ((1.0 - smooth) / 8.0 + smooth), 1e-18) << i;
      EXPECT_GT(now, old / 8.0);
      EXPECT_LT(now, old);
      ++blended;
    }
  }
  EXPECT_GT(kept, 20);
  EXPECT_GT(stretched, 20);
  EXPECT_GT(blended, 2);
}

TEST(Rope, YarnKeepsFastDimensionsStretchesSlowOnesAndScalesTheScores) {
  RopeFacts f = facts(RopeKind::kYarn, 1e6);
  f.factor = 4.0;
  f.original_max_position = 32768;
  const Rope rope(f, 128, 131072), plain(facts(RopeKind::kDefault, 1e6), 128, 131072);
  // Dimension d turns n = 32768 / (2 pi) * theta^(-2d/128) times: more than 32 turns are kept, fewer than 1 stretched.
  const double low = std::floor(128.0 * std::log(32768.0 / (32.0 * 2.0 * std::numbers::pi)) / (2.0 * std::log(1e6)));
  const double high = std::ceil(128.0 * std::log(32768.0 / (2.0 * std::numbers::pi)) / (2.0 * std::log(1e6)));
  EXPECT_EQ(low, 23.0);
  EXPECT_EQ(high, 40.0);
  for (size_t i = 0; i < 64; ++i) {
    const double old = plain.inverse_frequencies()[i], now = rope.inverse_frequencies()[i];
    const double x = static_cast<double>(i);
    const double stretched = std::clamp((x - low) / (high - low), 0.0, 1.0);
    EXPECT_NEAR(now, old / 4.0 * stretched + old * (1.0 - stretched), 1e-18) << i;
  }
  EXPECT_NEAR(rope.attention_factor(), 0.1 * std::log(4.0) + 1.0, 1e-15);
  std::vector<float> cos(64), sin(64);
  rope.angles(0, cos, sin);
  EXPECT_EQ(cos[5], static_cast<float>(0.1 * std::log(4.0) + 1.0));
}

TEST(Rope, YarnTakesAGivenAttentionFactorOrMscales) {
  RopeFacts f = facts(RopeKind::kYarn, 1e4);
  f.factor = 40.0;
  f.original_max_position = 4096;
  f.mscale = 1.0;
  f.mscale_all_dim = 0.5;
  EXPECT_NEAR(Rope(f, 64, 163840).attention_factor(), (0.1 * std::log(40.0) + 1.0) / (0.05 * std::log(40.0) + 1.0),
              1e-15);
  f.attention_factor = 1.25;
  EXPECT_EQ(Rope(f, 64, 163840).attention_factor(), 1.25);
}

TEST(Rope, YarnWithoutTruncationUsesTheExactRange) {
  RopeFacts f = facts(RopeKind::kYarn, 1e6);
  f.factor = 4.0;
  f.original_max_position = 32768;
  const Rope truncated(f, 128, 131072);
  f.truncate = false;
  const Rope exact(f, 128, 131072);
  EXPECT_EQ(exact.inverse_frequencies()[10], truncated.inverse_frequencies()[10]);
  EXPECT_NE(exact.inverse_frequencies()[30], truncated.inverse_frequencies()[30]);
}

}  // namespace
}  // namespace halfbyte
