// The formats and row quantisers against the golden vectors of the executable definition, bit for bit.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "formats/bf16.h"
#include "formats/e1m2.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "formats/e8m0.h"
#include "formats/fp8.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"
#include "support/golden_file.h"

namespace halfbyte::testing {
namespace {

bool same_bits(float a, float b) {
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b) || (std::isnan(a) && std::isnan(b));
}

template <class Format>
void check_format(const GoldenFile& golden, const std::string& name) {
  const auto values = golden.get<float>(name + "/values");
  for (size_t code = 0; code < values.size(); ++code) {
    EXPECT_TRUE(same_bits(Format::decode(static_cast<uint8_t>(code)), values[code])) << name << " code " << code;
  }
  const auto x = golden.get<float>(name + "/x");
  const auto codes = golden.get<uint8_t>(name + "/codes");
  ASSERT_EQ(x.size(), codes.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(Format::encode(x[i]), codes[i]) << name << " of " << x[i];
}

TEST(GoldenFormats, EveryCodeAndTie) {
  const GoldenFile golden = GoldenFile::open_topic("formats");
  check_format<E2M1>(golden, "e2m1");
  check_format<E1M2>(golden, "e1m2");
  check_format<E4M3>(golden, "e4m3");
  const auto e8m0 = golden.get<float>("e8m0/values");
  for (size_t code = 0; code < e8m0.size(); ++code) {
    EXPECT_TRUE(same_bits(E8M0::decode(static_cast<uint8_t>(code)), e8m0[code])) << code;
  }
  const auto bits = golden.get<uint32_t>("bf16/x_bits");
  const auto codes = golden.get<uint16_t>("bf16/codes");
  for (size_t i = 0; i < bits.size(); ++i) EXPECT_EQ(BF16::encode(bits_float(bits[i])), codes[i]) << bits[i];
}

// A quantised row: codes as stored, scales (none for FP8 rows), the dequantised values.
struct Quantised {
  std::vector<uint8_t> codes, scales;
  std::vector<float> values;
};

void expect_same(const std::vector<float>& expected, const std::vector<float>& actual, const std::string& path) {
  ASSERT_EQ(expected.size(), actual.size()) << path;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(same_bits(expected[i], actual[i]))
        << path << " element " << i << ": " << expected[i] << " " << actual[i];
  }
}

void expect_equal(const GoldenFile& golden, const std::string& path, const Quantised& q) {
  EXPECT_EQ(golden.get<uint8_t>(path + "/codes"), q.codes) << path;
  if (golden.has(path + "/scales")) {
    EXPECT_EQ(golden.get<uint8_t>(path + "/scales"), q.scales) << path;
  }
  if (golden.has(path + "/values")) expect_same(golden.get<float>(path + "/values"), q.values, path);
}

Quantised nvfp4(const float* x, int64_t rows, int64_t k, const std::vector<float>& alpha, bool weight) {
  Quantised q{std::vector<uint8_t>(rows * NVFP4::code_bytes(k)), std::vector<uint8_t>(rows * NVFP4::blocks(k)),
              std::vector<float>(rows * k)};
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t* codes = q.codes.data() + r * NVFP4::code_bytes(k);
    uint8_t* scales = q.scales.data() + r * NVFP4::blocks(k);
    if (weight)
      NVFP4::quantize_weight_row(x + r * k, k, alpha[r], codes, scales);
    else
      NVFP4::quantize_activation_row(x + r * k, k, alpha[r], codes, scales);
    NVFP4::dequantize_row(codes, scales, alpha[r], k, q.values.data() + r * k);
  }
  return q;
}

Quantised mxfp4(const float* x, int64_t rows, int64_t k, Mxfp4Rule rule) {
  Quantised q{std::vector<uint8_t>(rows * MXFP4::code_bytes(k)), std::vector<uint8_t>(rows * MXFP4::blocks(k)),
              std::vector<float>(rows * k)};
  for (int64_t r = 0; r < rows; ++r) {
    uint8_t* codes = q.codes.data() + r * MXFP4::code_bytes(k);
    uint8_t* scales = q.scales.data() + r * MXFP4::blocks(k);
    MXFP4::quantize_row(x + r * k, k, rule, codes, scales);
    MXFP4::dequantize_row(codes, scales, k, q.values.data() + r * k);
  }
  return q;
}

Quantised mxfp8(const float* x, int64_t rows, int64_t k) {
  Quantised q{std::vector<uint8_t>(rows * k), std::vector<uint8_t>(rows * MXFP8::blocks(k)),
              std::vector<float>(rows * k)};
  for (int64_t r = 0; r < rows; ++r) {
    MXFP8::quantize_row(x + r * k, k, q.codes.data() + r * k, q.scales.data() + r * MXFP8::blocks(k));
    for (int64_t i = 0; i < k; ++i) {
      q.values[r * k + i] = E4M3::decode(q.codes[r * k + i]) * E8M0::decode(q.scales[r * MXFP8::blocks(k) + i / 32]);
    }
  }
  return q;
}

Quantised fp8(const float* x, int64_t rows, int64_t k, float static_scale, std::vector<float>& alpha) {
  Quantised q{std::vector<uint8_t>(rows * k), {}, std::vector<float>(rows * k)};
  for (int64_t r = 0; r < rows; ++r) {
    alpha.push_back(FP8Row::quantize_row(x + r * k, k, static_scale, q.codes.data() + r * k));
    for (int64_t i = 0; i < k; ++i) q.values[r * k + i] = E4M3::decode(q.codes[r * k + i]) * alpha.back();
  }
  return q;
}

TEST(GoldenBlocks, EveryQuantiser) {
  const GoldenFile golden = GoldenFile::open_topic("blocks");
  int shapes = 0;
  for (const std::string& shape : golden.children("")) {
    if (shape == "borders") continue;  // below
    ++shapes;
    const auto x = golden.get<float>(shape + "/x");
    const int64_t rows = golden.dims(shape + "/x")[0], k = golden.dims(shape + "/x")[1];
    const auto path = [&](const char* name) { return shape + "/" + name; };

    if (golden.has(path("nvfp4_weight/codes"))) {  // not for rows that are not finite: loading refuses such weights
      const float weight_alpha = NVFP4::tensor_scale(abs_max(x.data(), 3 * k));
      EXPECT_EQ(golden.get<float>(path("nvfp4_weight/alpha"))[0], weight_alpha);
      expect_equal(golden, path("nvfp4_weight"), nvfp4(x.data(), 3, k, std::vector<float>(3, weight_alpha), true));
    }

    const float static_alpha = golden.scalar<float>(path("static_alpha"));
    expect_equal(golden, path("nvfp4_static"), nvfp4(x.data(), rows, k, std::vector<float>(rows, static_alpha), false));
    std::vector<float> row_alpha;
    for (int64_t r = 0; r < rows; ++r) row_alpha.push_back(NVFP4::tensor_scale(abs_max(x.data() + r * k, k)));
    expect_same(golden.get<float>(path("nvfp4_per_token/alpha")), row_alpha, path("nvfp4_per_token/alpha"));
    expect_equal(golden, path("nvfp4_per_token"), nvfp4(x.data(), rows, k, row_alpha, false));

    expect_equal(golden, path("mxfp4_floor"), mxfp4(x.data(), rows, k, Mxfp4Rule::kFloor));
    expect_equal(golden, path("mxfp4_ceil"), mxfp4(x.data(), rows, k, Mxfp4Rule::kCeil));
    expect_equal(golden, path("mxfp4_round74"), mxfp4(x.data(), rows, k, Mxfp4Rule::kRound74));
    expect_equal(golden, path("mxfp8"), mxfp8(x.data(), rows, k));

    std::vector<float> alpha;
    expect_equal(golden, path("fp8_per_token"), fp8(x.data(), rows, k, 0.0f, alpha));
    expect_same(golden.get<float>(path("fp8_per_token/alpha")), alpha, path("fp8_per_token/alpha"));
    alpha.clear();
    expect_equal(golden, path("fp8_static"), fp8(x.data(), rows, k, static_alpha, alpha));
    expect_same(golden.get<float>(path("fp8_static/alpha")), alpha, path("fp8_static/alpha"));
  }
  EXPECT_GE(shapes, 5);
}

TEST(GoldenBlocks, ExponentRulesAtTheirBorders) {
  const GoldenFile golden = GoldenFile::open_topic("blocks");
  const auto x = golden.get<float>("borders/x");
  const int64_t rows = golden.dims("borders/x")[0], k = golden.dims("borders/x")[1];
  expect_equal(golden, "borders/mxfp4_floor", mxfp4(x.data(), rows, k, Mxfp4Rule::kFloor));
  expect_equal(golden, "borders/mxfp4_ceil", mxfp4(x.data(), rows, k, Mxfp4Rule::kCeil));
  expect_equal(golden, "borders/mxfp4_round74", mxfp4(x.data(), rows, k, Mxfp4Rule::kRound74));
}

}  // namespace
}  // namespace halfbyte::testing
