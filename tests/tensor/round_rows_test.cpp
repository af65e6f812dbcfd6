// Every form of the row rounders against the scalar definition, bit for bit, on the values where roundings differ.
#include "tensor/round_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "formats/bf16.h"
#include "formats/fp8.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

constexpr int64_t kWidths[] = {1, 15, 16, 17, 31, 32, 33, 127, 128, 129, 255, 256, 576, 1536, 1544};

// Kinds of rows: plain, very different blocks, subnormals, zeros between, ties of E2M1 at a scale of 1, huge.
std::vector<float> row(int64_t k, int kind) {
  std::mt19937 rng(static_cast<unsigned>(k * 16 + kind));
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(k));
  constexpr float kTies[] = {0.25f, 0.75f, 1.25f,  1.75f, 2.5f,        3.5f,
                             5.0f,  6.0f,  -0.25f, -0.0f, 0.24999999f, 5.0000005f};
  for (int64_t i = 0; i < k; ++i) {
    const float v = normal(rng);
    switch (kind) {
      case 0: x[i] = v; break;
      case 1: x[i] = std::ldexp(v, static_cast<int>(i / 16 % 40) - 30); break;
      case 2: x[i] = v * 0x1p-140f; break;
      case 3: x[i] = i / 32 % 2 == 0 ? 0.0f : (i % 5 == 0 ? v : -0.0f); break;
      case 4: x[i] = kTies[i % 12]; break;
      default: x[i] = v * 0x1p120f; break;
    }
  }
  return x;
}
constexpr int kKinds = 6;

class RoundRows : public ::testing::TestWithParam<const RowRounders*> {};

TEST_P(RoundRows, Nvfp4EqualsTheDefinition) {
  for (const int64_t k : kWidths) {
    for (int kind = 0; kind < kKinds; ++kind) {
      const std::vector<float> x = row(k, kind);
      const float own = abs_max(x.data(), k);
      // Of the row, of a larger tensor, too small (saturates), and one that makes E4M3 scales subnormal.
      for (const float amax : {own, own * 3.0f, own / 64.0f, own * 5000.0f, 1.0f, 2688.0f}) {
        if (!std::isfinite(amax)) continue;
        const float alpha = NVFP4::tensor_scale(amax);
        std::vector<uint8_t> codes(NVFP4::code_bytes(k), 0xAA), scales(NVFP4::scale_bytes(k), 0xAA), c = codes,
                                                                                                     s = scales;
        NVFP4::quantize_weight_row(x.data(), k, alpha, codes.data(), scales.data());
        GetParam()->nvfp4_weight(x.data(), k, alpha, c.data(), s.data());
        ASSERT_EQ(s, scales) << "k " << k << " kind " << kind << " amax " << amax;
        ASSERT_EQ(c, codes) << "k " << k << " kind " << kind << " amax " << amax;
      }
    }
  }
}

TEST_P(RoundRows, Mxfp4EqualsTheDefinition) {
  for (const int64_t k : kWidths) {
    for (int kind = 0; kind < kKinds; ++kind) {
      const std::vector<float> x = row(k, kind);
      for (const Mxfp4Rule rule : {Mxfp4Rule::kFloor, Mxfp4Rule::kCeil, Mxfp4Rule::kRound74}) {
        std::vector<uint8_t> codes(MXFP4::code_bytes(k), 0xAA), scales(MXFP4::scale_bytes(k), 0xAA), c = codes,
                                                                                                     s = scales;
        MXFP4::quantize_row(x.data(), k, rule, codes.data(), scales.data());
        GetParam()->mxfp4(x.data(), k, rule, c.data(), s.data());
        ASSERT_EQ(s, scales) << "k " << k << " kind " << kind;
        ASSERT_EQ(c, codes) << "k " << k << " kind " << kind;
      }
    }
  }
}

// Every border of a block's exponent: amax = s 2^p with s around 1.5 and 1.75.
TEST_P(RoundRows, Mxfp4ExponentBorders) {
  for (const float s : {1.0f, 1.4999999f, 1.5f, 1.5000001f, 1.7499999f, 1.75f, 1.9999999f}) {
    for (const int p : {-130, -126, -125, -3, 0, 5, 127}) {
      std::vector<float> x(256, std::ldexp(-s, p));
      for (const Mxfp4Rule rule : {Mxfp4Rule::kFloor, Mxfp4Rule::kCeil, Mxfp4Rule::kRound74}) {
        std::vector<uint8_t> codes(128), scales(8), c = codes, t = scales;
        MXFP4::quantize_row(x.data(), 256, rule, codes.data(), scales.data());
        GetParam()->mxfp4(x.data(), 256, rule, c.data(), t.data());
        ASSERT_EQ(t, scales) << s << " * 2^" << p;
        ASSERT_EQ(c, codes) << s << " * 2^" << p;
      }
    }
  }
}

TEST_P(RoundRows, Fp8EqualsTheDefinition) {
  for (const int64_t k : kWidths) {
    for (int kind = 0; kind < kKinds; ++kind) {
      const std::vector<float> x = row(k, kind);
      // The row's own scale, and others under which elements saturate, are subnormal or vanish.
      for (const float factor : {1.0f, 0.25f, 3.7f, 5000.0f, 1e6f}) {
        const float scale = FP8Row::scale(abs_max(x.data(), k)) * factor;
        if (!std::isfinite(scale)) continue;
        std::vector<uint8_t> codes(static_cast<size_t>(k));
        GetParam()->fp8(x.data(), k, scale, codes.data());
        for (int64_t i = 0; i < k; ++i) ASSERT_EQ(codes[i], E4M3::encode(x[i] / scale)) << x[i] << " / " << scale;
      }
    }
  }
}

TEST_P(RoundRows, Bf16AndWidestEqualTheDefinition) {
  for (const int64_t k : kWidths) {
    for (int kind = 0; kind < kKinds; ++kind) {
      std::vector<float> x = row(k, kind);
      std::vector<uint16_t> out(static_cast<size_t>(k));
      GetParam()->bf16(x.data(), k, out.data());
      for (int64_t i = 0; i < k; ++i) ASSERT_EQ(out[i], BF16::encode(x[i])) << x[i];
      ASSERT_EQ(GetParam()->widest(x.data(), k), abs_max(x.data(), k));
      for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::quiet_NaN()}) {
        x[static_cast<size_t>(k - 1)] = odd;
        ASSERT_FALSE(std::isfinite(GetParam()->widest(x.data(), k)));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, RoundRows, ::testing::ValuesIn(row_rounders_here().begin(), row_rounders_here().end()),
                         [](const auto& param) { return std::string(param.param->name); });

}  // namespace
}  // namespace halfbyte
