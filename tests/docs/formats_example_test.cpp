// The worked example of docs/formats.md; docs_test.py holds the page and this file equal.
#include <gtest/gtest.h>

#include "formats/mxfp4.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

TEST(FormatsPage, WorkedExample) {
  // docs/formats.md: begin
  const float x[16] = {0.9f,  -0.31f, 0.02f, 0.05f, 1.3f, -2.3f, 0.0f,  0.7f,
                       -0.1f, 0.15f,  0.44f, -0.6f, 1.9f, -1.0f, 0.25f, 3.0f};
  uint8_t codes[8], scales[1];
  NVFP4::quantize_weight_row(x, /*k=*/16, /*alpha=*/0.003f, codes, scales);

  EXPECT_EQ(scales[0], 0x72);  // e4m3(3 / (6 * 0.003)) = e4m3(166.7) = 160, so a step of 160 * 0.003 = 0.48
  EXPECT_EQ(codes[0], 0x94);   // even element low: 0.9 / 0.48 -> 2 (code 4); odd high: -0.31 / 0.48 -> -0.5 (code 9)
  EXPECT_EQ(codes[7], 0x71);   // 0.25 / 0.48 -> 0.5 (code 1); 3 / 0.48 = 6.25 -> saturates at 6 (code 7)

  float y[16];
  NVFP4::dequantize_row(codes, scales, /*alpha=*/0.003f, /*k=*/16, y);
  EXPECT_FLOAT_EQ(y[0], 0.96f);
  EXPECT_FLOAT_EQ(y[15], 2.88f);

  // The same values in MXFP4, as the first half of a block of 32 that ends early.
  uint8_t mx_codes[16], mx_scales[1];
  MXFP4::quantize_row(x, /*k=*/16, Mxfp4Rule::kRound74, mx_codes, mx_scales);
  EXPECT_EQ(mx_scales[0], 126);  // 3 = 1.5 * 2^1: e = 1 - 2 = -1, stored as 126; the step is 0.5
  EXPECT_EQ(mx_codes[0], 0x94);
  EXPECT_EQ(mx_codes[8], 0);  // padding
  // docs/formats.md: end
}

}  // namespace
}  // namespace halfbyte
