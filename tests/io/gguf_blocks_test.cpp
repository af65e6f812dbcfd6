// Every form of the GGUF block decoders against the values of the package gguf (make_gguf_block_goldens.py).
#include "io/gguf_blocks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "formats/bf16.h"
#include "formats/f16.h"
#include "io/dequantize.h"
#include "support/golden_file.h"

namespace halfbyte {
namespace {

using testing::GoldenFile;

constexpr DType kBlockTypes[] = {DType::kQ4_0,  DType::kQ4_1,  DType::kQ5_0,      DType::kQ5_1,     DType::kQ8_0,
                                 DType::kQ2K,   DType::kQ3K,   DType::kQ4K,       DType::kQ5K,      DType::kQ6K,
                                 DType::kIQ4NL, DType::kIQ4XS, DType::kGgufMXFP4, DType::kGgufNVFP4};

const GoldenFile& goldens() {
  static const GoldenFile file(std::string(HALFBYTE_SOURCE_DIR) + "/tests/io/gguf_blocks.hbg");
  return file;
}

class GgufBlocks : public ::testing::TestWithParam<DType> {};

TEST_P(GgufBlocks, EveryFormEqualsTheGoldens) {
  const DTypeInfo& info = dtype_info(GetParam());
  const std::string name(info.name);
  const auto blocks = goldens().get<uint8_t>(name + "/blocks");
  const auto values = goldens().get<float>(name + "/values");
  const size_t count = blocks.size() / info.block_bytes;
  ASSERT_EQ(goldens().dims(name + "/blocks")[1], info.block_bytes);
  ASSERT_EQ(values.size(), count * info.block);
  // At an odd address: files align nothing.
  std::vector<std::byte> storage(blocks.size() + 1);
  std::memcpy(storage.data() + 1, blocks.data(), blocks.size());
  for (const BlockDecoders* form : block_decoders_here()) {
    std::vector<float> out(values.size(), 777.0f);
    form->decoder(GetParam())(storage.data() + 1, count, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      ASSERT_EQ(out[i], values[i]) << form->name << " " << name << " block " << i / info.block << " element "
                                   << i % info.block;
    }
  }
  std::vector<float> row(values.size());
  dequantize_row(GetParam(), std::span(storage).subspan(1), row);
  EXPECT_EQ(row, values);
}

// Of random blocks, infinite and NaN factors among them.
TEST_P(GgufBlocks, TheLargestIsThatOfTheValues) {
  const DTypeInfo& info = dtype_info(GetParam());
  std::mt19937 random(7);
  std::vector<std::byte> block(info.block_bytes);
  std::vector<float> values(info.block);
  int finite = 0, damaged = 0;
  for (const BlockDecoders* form : block_decoders_here()) {
    const LargestOfBlocksFn largest = form->largest(GetParam());
    if (largest == nullptr) continue;
    for (int i = 0; i < 4000; ++i) {
      for (std::byte& b : block) b = static_cast<std::byte>(random());
      form->decoder(GetParam())(block.data(), 1, values.data());
      float expected = 0.0f;
      bool all_finite = true;
      for (const float v : values) {
        all_finite = all_finite && is_finite(v);
        expected = std::max(expected, std::fabs(v));
      }
      const float found = largest(block.data(), 1);
      ASSERT_EQ(is_finite(found), all_finite) << form->name << " block " << i;
      if (all_finite) {
        ASSERT_EQ(found, expected) << form->name << " block " << i;
      }
      ++(all_finite ? finite : damaged);
    }
  }
  const bool known = block_decoders_here().front()->largest(GetParam()) != nullptr;
  EXPECT_EQ(finite > 100, known);
  EXPECT_EQ(damaged > 10, known);
}

TEST_P(GgufBlocks, TheLargestOfARowIsThatOfAllItsBlocks) {
  const std::string name(dtype_info(GetParam()).name);
  const auto blocks = goldens().get<uint8_t>(name + "/blocks");
  const size_t bytes = dtype_info(GetParam()).block_bytes, count = blocks.size() / bytes;
  const auto values = goldens().get<float>(name + "/values");
  for (size_t first = 0; first < count; ++first) {  // each block may hold the largest
    const auto row = std::as_bytes(std::span(blocks)).subspan(first * bytes);
    const std::optional<float> largest = largest_of_row(GetParam(), row);
    ASSERT_EQ(largest.has_value(), block_decoders_here().front()->largest(GetParam()) != nullptr);
    if (!largest) return;
    float expected = 0.0f;
    for (size_t i = first * dtype_info(GetParam()).block; i < values.size(); ++i)
      expected = std::max(expected, std::fabs(values[i]));
    ASSERT_EQ(*largest, expected) << "from block " << first << " of " << count;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GgufBlocks, ::testing::ValuesIn(kBlockTypes),
                         [](const auto& param) { return std::string(dtype_info(param.param).name); });

TEST(GgufBlocks, FormsAreDistinctAndNamed) {
  const auto forms = block_decoders_here();
  EXPECT_STREQ(forms.front()->name, "baseline");
  if (forms.size() == 2) {
    EXPECT_STREQ(forms.back()->name, "avx2");
    EXPECT_NE(forms[0]->decoder(DType::kQ4K), forms[1]->decoder(DType::kQ4K));
  }
  EXPECT_EQ(forms.front()->decoder(DType::kF8E4M3), nullptr);
}

// All 65,536 codes of both 16-bit types, in runs and one by one.
TEST(GgufBlocks, SixteenBitTypesEqualTheirDefinition) {
  std::vector<uint16_t> codes(65536);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint16_t>(i);
  const auto* bytes = reinterpret_cast<const std::byte*>(codes.data());
  std::vector<float> out(codes.size());
  const auto equal = [](float a, float b) { return float_bits(a) == float_bits(b) || (is_nan(a) && is_nan(b)); };
  for (const BlockDecoders* form : block_decoders_here()) {
    for (const size_t run : {size_t{65536}, size_t{1}, size_t{100}}) {
      const auto decode = [&](DType type) {
        for (size_t i = 0; i < codes.size(); i += run)
          form->decoder(type)(bytes + 2 * i, std::min(run, codes.size() - i), out.data() + i);
      };
      decode(DType::kF16);
      for (size_t i = 0; i < codes.size(); ++i)
        ASSERT_TRUE(equal(out[i], F16::decode(codes[i]))) << form->name << " F16 " << i;
      decode(DType::kBF16);
      for (size_t i = 0; i < codes.size(); ++i)
        ASSERT_TRUE(equal(out[i], BF16::decode(codes[i]))) << form->name << " BF16 " << i;
    }
  }
}

// Infinite and NaN factors and NaN scales reach the values: loading refuses them there.
TEST(GgufBlocks, NotFiniteIsKept) {
  for (const BlockDecoders* form : block_decoders_here()) {
    std::vector<float> out(64);
    std::vector<std::byte> block(36, std::byte{0x11});
    block[0] = std::byte{0x00};
    block[1] = std::byte{0x7C};  // infinity
    form->decoder(DType::kQ8_0)(block.data(), 1, out.data());
    EXPECT_TRUE(std::isinf(out[0]));
    block[1] = std::byte{0x7E};
    form->decoder(DType::kQ8_0)(block.data(), 1, out.data());
    EXPECT_TRUE(std::isnan(out[0]));
    block[0] = std::byte{255};
    form->decoder(DType::kGgufMXFP4)(block.data(), 1, out.data());
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[31]));
    block[0] = std::byte{0x7F};
    form->decoder(DType::kGgufNVFP4)(block.data(), 1, out.data());
    EXPECT_TRUE(std::isnan(out[0]) && std::isnan(out[15]));
    EXPECT_FALSE(std::isnan(out[16]));
  }
}

}  // namespace
}  // namespace halfbyte
