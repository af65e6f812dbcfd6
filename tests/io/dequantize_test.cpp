#include "io/dequantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "formats/e4m3.h"
#include "formats/f16.h"

namespace halfbyte {
namespace {

std::vector<float> row(DType type, const std::string& bytes, size_t n) {
  // At an odd address: files align nothing.
  std::vector<std::byte> storage(bytes.size() + 1);
  std::memcpy(storage.data() + 1, bytes.data(), bytes.size());
  std::vector<float> out(n);
  dequantize_row(type, std::span(storage).subspan(1), out);
  return out;
}

std::string f16(uint16_t bits) {
  return {static_cast<char>(bits & 0xFF), static_cast<char>(bits >> 8)};
}

TEST(Dequantize, PlainTypes) {
  EXPECT_EQ(row(DType::kF32, std::string("\0\0\x80\x3f\0\0\x20\xc1", 8), 2), (std::vector<float>{1, -10}));
  EXPECT_EQ(row(DType::kBF16, std::string("\x80\x3f\x20\xc1\x01\x00", 6), 3), (std::vector<float>{1, -10, 0x1p-133f}));
  EXPECT_EQ(row(DType::kF16, f16(0x3C00) + f16(0xC900) + f16(0x0001) + f16(0x7BFF), 4),
            (std::vector<float>{1, -10, 0x1p-24f, 65504}));
  EXPECT_TRUE(std::isinf(row(DType::kF16, f16(0x7C00), 1)[0]));
  EXPECT_TRUE(std::isnan(row(DType::kF16, f16(0x7E00), 1)[0]));
  std::string codes;
  for (int i = 0; i < 256; ++i) codes += static_cast<char>(i);
  const auto values = row(DType::kF8E4M3, codes, 256);
  for (int i = 0; i < 256; ++i) {
    if (E4M3::is_nan_code(static_cast<uint8_t>(i)))
      EXPECT_TRUE(std::isnan(values[i]));
    else
      EXPECT_EQ(values[i], E4M3::decode(static_cast<uint8_t>(i)));
  }
}

TEST(Dequantize, KnowsWhatItReads) {
  for (const DType type :
       {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kQ4_0, DType::kIQ4XS, DType::kGgufNVFP4})
    EXPECT_TRUE(can_dequantize(type));
  for (const DType type : {DType::kU8, DType::kI8, DType::kI32, DType::kI64, DType::kF64, DType::kBool, DType::kF8E5M2})
    EXPECT_FALSE(can_dequantize(type));
}

}  // namespace
}  // namespace halfbyte
