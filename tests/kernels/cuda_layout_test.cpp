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

}  // namespace
}  // namespace halfbyte::cuda
