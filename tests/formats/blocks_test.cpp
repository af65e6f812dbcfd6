// Row quantisers: scales, zero and tiny blocks, saturation, tails, NaN, and the published error of each format.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "formats/fp8.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> gaussian(size_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(n);
  for (float& v : x) v = normal(rng);
  return x;
}

double mse(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return sum / static_cast<double>(a.size());
}

TEST(NVFP4, ErrorOnGaussianData) {
  const std::vector<float> x = gaussian(1 << 20, 1);
  const int64_t n = static_cast<int64_t>(x.size());
  const float alpha = NVFP4::tensor_scale(abs_max(x.data(), n));
  std::vector<uint8_t> codes(NVFP4::code_bytes(n)), scales(NVFP4::scale_bytes(n));
  std::vector<float> back(x.size());
  NVFP4::quantize_weight_row(x.data(), n, alpha, codes.data(), scales.data());
  NVFP4::dequantize_row(codes.data(), scales.data(), alpha, n, back.data());
  EXPECT_NEAR(mse(x, back), 0.00904, 0.00005);
}

TEST(MXFP4, ErrorOnGaussianDataOfEachRule) {
  const std::vector<float> x = gaussian(1 << 20, 2);
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<uint8_t> codes(MXFP4::code_bytes(n)), scales(MXFP4::scale_bytes(n));
  std::vector<float> back(x.size());
  const auto error = [&](Mxfp4Rule rule) {
    MXFP4::quantize_row(x.data(), n, rule, codes.data(), scales.data());
    MXFP4::dequantize_row(codes.data(), scales.data(), n, back.data());
    return mse(x, back);
  };
  EXPECT_NEAR(error(Mxfp4Rule::kFloor), 0.0133, 0.0001);
  EXPECT_NEAR(error(Mxfp4Rule::kCeil), 0.0133, 0.0001);
  EXPECT_NEAR(error(Mxfp4Rule::kRound74), 0.0126, 0.0001);
}

TEST(NVFP4, ZeroTinyAndHugeBlocks) {
  EXPECT_EQ(NVFP4::weight_scale(0.0f, 1.0f), E4M3::kOne);
  EXPECT_EQ(NVFP4::activation_scale(0.0f, 1.0f), 0);
  EXPECT_EQ(NVFP4::weight_scale(1e-9f, 1.0f), 1);  // 2^-9, never 0
  EXPECT_EQ(NVFP4::activation_scale(1e-9f, 1.0f), 0);
  EXPECT_EQ(NVFP4::weight_scale(1e9f, 1.0f), 0x7E);
  EXPECT_EQ(NVFP4::tensor_scale(0.0f), 1.0f);
  EXPECT_EQ(NVFP4::tensor_scale(1e-43f), 1.0f);  // the quotient underflows
  EXPECT_EQ(NVFP4::tensor_scale(2688.0f), 1.0f);

  const std::vector<float> x = {1e-9f, -1e-9f, 0, 1e-10f};
  uint8_t codes[8], scale[1];
  NVFP4::quantize_activation_row(x.data(), 4, 1.0f, codes, scale);
  EXPECT_EQ(scale[0], 0);
  for (uint8_t c : codes) EXPECT_EQ(c, 0);
}

TEST(NVFP4, UsesTheRoundedScale) {
  // amax 10 -> 10/6 = 1.667 -> E4M3 1.625 (tie-free): 10/1.625 = 6.15 saturates at 6; 4/1.625 = 2.46 -> 2; 4.1/1.625
  // -> 3.
  const float x[4] = {10.0f, 4.0f, 4.1f, -10.0f};
  uint8_t codes[8], scale[1];
  NVFP4::quantize_weight_row(x, 4, 1.0f, codes, scale);
  EXPECT_EQ(E4M3::decode(scale[0]), 1.625f);
  EXPECT_EQ(codes[0], E2M1::pack(7, 4));
  EXPECT_EQ(codes[1], E2M1::pack(5, 15));
}

TEST(NVFP4, TailIsPaddedWithZeroCodesAndHasItsOwnScale) {
  std::vector<float> x(19, 6.0f);
  x[16] = 3.0f;
  x[17] = -1.5f;
  x[18] = 0.25f;
  uint8_t codes[16], scales[2];
  NVFP4::quantize_weight_row(x.data(), 19, 1.0f, codes, scales);
  EXPECT_EQ(scales[0], E4M3::kOne);
  EXPECT_EQ(E4M3::decode(scales[1]), 0.5f);
  EXPECT_EQ(codes[8], E2M1::pack(7, 13));
  EXPECT_EQ(codes[9], E2M1::pack(1, 0));
  for (int i = 10; i < 16; ++i) EXPECT_EQ(codes[i], 0);
}

TEST(NVFP4, NonFiniteBlockGetsNanScaleAndZeroCodes) {
  for (float bad : {kNan, -kNan, kInf, -kInf}) {
    std::vector<float> x(32, 1.0f);
    x[20] = bad;
    uint8_t codes[16], scales[2];
    NVFP4::quantize_activation_row(x.data(), 32, 1.0f, codes, scales);
    EXPECT_FALSE(E4M3::is_nan_code(scales[0]));
    EXPECT_EQ(scales[1], E4M3::kNaN);
    for (int i = 8; i < 16; ++i) EXPECT_EQ(codes[i], 0);
  }
}

TEST(MXFP4, ExponentOfEachRule) {
  struct Case {
    float amax;
    int floor, ceil, round74;
  };
  for (const Case& c :
       {Case{6.0f, 0, 0, 0}, Case{std::nextafter(6.0f, 7.0f), 0, 1, 0}, Case{std::nextafter(7.0f, 6.0f), 0, 1, 0},
        Case{7.0f, 0, 1, 1}, Case{8.0f, 1, 1, 1}, Case{4.0f, 0, 0, 0}, Case{0x1p-126f, -127, -127, -127},
        Case{1e-44f, -127, -127, -127}, Case{std::numeric_limits<float>::max(), 125, 126, 126}}) {
    EXPECT_EQ(MXFP4::scale(c.amax, Mxfp4Rule::kFloor), c.floor + 127) << c.amax;
    EXPECT_EQ(MXFP4::scale(c.amax, Mxfp4Rule::kCeil), c.ceil + 127) << c.amax;
    EXPECT_EQ(MXFP4::scale(c.amax, Mxfp4Rule::kRound74), c.round74 + 127) << c.amax;
  }
  EXPECT_EQ(MXFP4::scale(0.0f, Mxfp4Rule::kRound74), 0);
  EXPECT_EQ(MXFP4::scale(kNan, Mxfp4Rule::kRound74), E8M0::kNaN);
}

TEST(MXFP4, TailAndNan) {
  std::vector<float> x(33, 1.0f);
  x[32] = -6.0f;
  uint8_t codes[32], scales[2];
  MXFP4::quantize_row(x.data(), 33, Mxfp4Rule::kRound74, codes, scales);
  EXPECT_EQ(scales[0], 127 - 2);
  EXPECT_EQ(codes[0], E2M1::pack(6, 6));  // 1 / 2^-2 = 4
  EXPECT_EQ(scales[1], 127);
  EXPECT_EQ(codes[16], E2M1::pack(15, 0));
  for (int i = 17; i < 32; ++i) EXPECT_EQ(codes[i], 0);
  x[3] = kInf;
  MXFP4::quantize_row(x.data(), 33, Mxfp4Rule::kRound74, codes, scales);
  EXPECT_EQ(scales[0], E8M0::kNaN);
  EXPECT_EQ(codes[0], 0);
}

TEST(FP8, RowScale) {
  const float x[3] = {448.0f, -1.0f, 0.0f};
  uint8_t codes[3];
  EXPECT_EQ(FP8Row::quantize_row(x, 3, 0.0f, codes), 1.0f);
  EXPECT_EQ(codes[0], 0x7E);
  EXPECT_EQ(codes[1], 0xB8);
  EXPECT_EQ(FP8Row::quantize_row(x, 3, 0.5f, codes), 0.5f);
  EXPECT_EQ(codes[0], 0x7E);  // 896 saturates
  EXPECT_EQ(codes[1], 0xC0);
  const float zero[2] = {0.0f, 1e-45f};
  EXPECT_EQ(FP8Row::quantize_row(zero, 2, 0.0f, codes), 1.0f);
  EXPECT_EQ(codes[1], 0);
  const float bad[2] = {1.0f, kInf};
  EXPECT_TRUE(std::isnan(FP8Row::quantize_row(bad, 2, 0.5f, codes)));
  EXPECT_EQ(codes[0], 0);
}

TEST(FP8, BlockScale) {
  std::vector<float> x(40, 0.0f);
  x[0] = 511.0f;  // 2^8 * 1.996: exponent 0, saturates
  x[1] = 17.0f;
  uint8_t codes[40], scales[2];
  MXFP8::quantize_row(x.data(), 40, codes, scales);
  EXPECT_EQ(scales[0], 127);
  EXPECT_EQ(codes[0], 0x7E);
  EXPECT_EQ(E4M3::decode(codes[1]), 16.0f);  // a tie between 16 and 18, to even
  EXPECT_EQ(scales[1], 0);
}

}  // namespace
}  // namespace halfbyte
