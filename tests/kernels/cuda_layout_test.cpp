// The layouts of the CUDA kernels, whose header is plain C++: what a kernel finds in a packed word, scale byte and split is
// what the packer meant. Needs neither nvcc nor a device.
#include "kernels/cuda/step_layout.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "formats/bf16.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"
#include "kernels/cuda/prompt_layout.h"

namespace halfbyte::cuda {
namespace {

uint32_t word_of(uint32_t codes) {  // code i in bits 4 i
  uint32_t word = 0;
  for (int b = 0; b < 32; ++b) word ^= ((codes >> b) & 1u) != 0 ? kWordColumns[static_cast<size_t>(b)] : 0u;
  return word;
}

TEST(CudaLayout, WordsGiveTheCodesBackAsBf16) {
  uint32_t codes = 1;
  for (int round = 0; round < 20000; ++round) {
    codes = codes * 1664525u + 1013904223u;
    const uint32_t word = word_of(codes);
    for (int i = 0; i < 4; ++i) {
      const uint32_t halves = word_register(word, i);
      for (int high = 0; high < 2; ++high) {
        const float got = BF16::decode(static_cast<uint16_t>(halves >> (16 * high)));
        const float expected = E2M1::decode(static_cast<uint8_t>((codes >> (4 * (i + 4 * high))) & 15u));
        ASSERT_EQ(std::ldexp(got, -kPairExponent), expected) << "codes " << codes << ", register " << i;
        ASSERT_EQ(std::signbit(got), std::signbit(expected));
      }
    }
  }
}

TEST(CudaLayout, ScaleBytesAreTheirScales) {
  for (int code = 1; code < E4M3::kNaN; ++code) {
    const uint32_t bits = kScaleBias | static_cast<uint32_t>(scale_byte(static_cast<uint8_t>(code))) << 20;
    EXPECT_EQ(std::ldexp(std::bit_cast<float>(bits), -kScaleExponent), E4M3::decode(static_cast<uint8_t>(code)));
    EXPECT_EQ(bits & ~(kScaleMask | kScaleBias), 0u);
  }
}

// Every step has one owner, runs ascend, and no panel has more slots than said.
TEST(CudaLayout, SplitsCoverEveryStepOnce) {
  for (const int total : {1, 7, 132, 1000, 3072}) {
    for (const int runs : {1, 3, 7, 132}) {
      if (runs > total) continue;
      const Split split = Split::of(total, runs);
      std::vector<int> steps(static_cast<size_t>(runs), 0);
      for (int s = 0; s < total; ++s) {
        const int owner = split.owner(s);
        ASSERT_LE(split.begin(owner), s);
        ASSERT_LT(s, owner + 1 < runs ? split.begin(owner + 1) : total);
        ++steps[static_cast<size_t>(owner)];
      }
      for (const int count : steps) EXPECT_TRUE(count == split.quotient || count == split.quotient + 1);
    }
  }
}

// Every value has a place of its own, and the places of eight rows and 64 K are an atom of 1,024 bytes in which the hardware
// finds 16-byte chunk c of row r at address bits 4 to 6 = c xor r.
TEST(CudaLayout, PromptRowsLieInSwizzledAtoms) {
  for (const int rows : {1, 64, 65, 200, 300}) {
    const int padded = padded_prompt_rows(rows), k = 192;
    EXPECT_GE(padded, rows);
    EXPECT_EQ(padded % 64, 0);
    std::vector<bool> taken(static_cast<size_t>(padded * k / 4));
    for (int r = 0; r < padded; ++r) {
      for (int at = 0; at < k; at += 4) {
        const size_t offset = prompt_offset(padded, r, at);
        ASSERT_EQ(offset % 8, 0u);
        ASSERT_LT(offset / 8, taken.size());
        ASSERT_FALSE(taken[offset / 8]);
        taken[offset / 8] = true;
        const size_t atom =
            (static_cast<size_t>(at / 64) * static_cast<size_t>(padded / 8) + static_cast<size_t>(r / 8)) * 1024;
        const size_t plain = static_cast<size_t>(r % 8) * 128 + static_cast<size_t>(at % 64) * 2;
        ASSERT_EQ(offset, atom + (plain ^ ((plain >> 3) & 0x70))) << "row " << r << ", k " << at;
      }
    }
  }
}

// A prompt's weight is a code times a scale byte in BF16: exact, and what kUnscale undoes.
TEST(CudaLayout, CodesTimesScalesAreBf16) {
  for (int byte = 0; byte < 256; ++byte) {
    const float scale = BF16::decode(static_cast<uint16_t>((kScaleBias >> 16) + static_cast<uint32_t>(byte) * 16));
    EXPECT_EQ(scale, std::ldexp(1.0f + static_cast<float>(byte & 7) / 8, (byte >> 3) - 15 + kScaleExponent));
    for (int code = 0; code < 8; ++code) {
      const float weight = std::ldexp(E2M1::decode(static_cast<uint8_t>(code)), kPairExponent);
      const float product = weight * scale;
      EXPECT_EQ(BF16::round(product), product) << "scale " << byte << ", code " << code;
      EXPECT_EQ(static_cast<double>(product), static_cast<double>(weight) * static_cast<double>(scale));
    }
  }
}

TEST(CudaLayout, Fp8CodesBecomeBf16) {
  const float power = BF16::decode(static_cast<uint16_t>(kFp8Power));
  for (uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;  // NaN
    const uint32_t bits = fp8_as_bf16(code << 8 | (code ^ 0x80u) << 24);
    EXPECT_EQ(BF16::decode(static_cast<uint16_t>(bits)) * power, E4M3::decode(static_cast<uint8_t>(code)));
    EXPECT_EQ(BF16::decode(static_cast<uint16_t>(bits >> 16)) * power, E4M3::decode(static_cast<uint8_t>(code ^ 0x80)));
  }
}

// FP16 for devices that have no instruction for it.
TEST(CudaLayout, Fp8CodesBecomeFp16) {
  const auto half = [](uint32_t bits) {  // a finite FP16 number
    const int exponent = static_cast<int>(bits >> 10 & 31), mantissa = static_cast<int>(bits & 1023);
    const float value = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                      : std::ldexp(static_cast<float>(1024 + mantissa), exponent - 25);
    return (bits & 0x8000) != 0 ? -value : value;
  };
  EXPECT_EQ(half(kFp8PowerF16 & 0xFFFF), 256.0f);
  EXPECT_EQ(kFp8PowerF16 >> 16, kFp8PowerF16 & 0xFFFF);
  for (uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;  // NaN
    const uint32_t bits = fp8_as_f16(code << 8 | (code ^ 0x80u) << 24);
    EXPECT_EQ(half(bits & 0xFFFF) * 256.0f, E4M3::decode(static_cast<uint8_t>(code)));
    EXPECT_EQ(half(bits >> 16) * 256.0f, E4M3::decode(static_cast<uint8_t>(code ^ 0x80)));
  }
}

}  // namespace
}  // namespace halfbyte::cuda
