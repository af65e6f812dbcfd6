// x^ of prompt rows, as the warp-group matrix product (linear_prompt.cu) copies it to shared memory: [64 K][row][128 bytes], the
// 16-byte chunks of a row swizzled by its index, so that eight neighbouring rows are one of the instruction's atoms and any
// run of rows whose first is a multiple of 8 is one contiguous copy. And how codes of an FP8 cache become BF16.
#pragma once

#include <cstddef>

#include "formats/rounding.h"

namespace halfbyte::cuda {

inline constexpr int kPromptK = 64;          // K of a run of rows
inline constexpr int kPromptRowBytes = 128;  // of kPromptK values

// Rows of a pass rounded up to whole tiles; the same for all of its linears.
HB_HOST_DEVICE constexpr int padded_prompt_rows(int rows) {
  return rows <= 64 ? 64 : rows <= 128 ? 128 : (rows + 255) / 256 * 256;
}
// Of four neighbouring values from k (a multiple of 4) on; padded: padded_prompt_rows.
HB_HOST_DEVICE constexpr size_t prompt_offset(int padded, int row, int k) {
  const int chunk = k % kPromptK / 8;
  return (static_cast<size_t>(k / kPromptK) * static_cast<size_t>(padded) + static_cast<size_t>(row)) *
             kPromptRowBytes +
         static_cast<size_t>(((chunk ^ (row % 8)) * 16) + k % 8 * 2);
}

// Two E4M3 codes, in bits 8 to 15 and 24 to 31, as two BF16 of 2^-120 times their values, subnormals too. (0x7F and 0xFF, the
// NaNs, give +-480: keys and values that are NaN come of a row that is NaN elsewhere, too.)
HB_HOST_DEVICE constexpr uint32_t fp8_as_bf16(uint32_t codes) {
  return ((codes >> 4) & 0x07F007F0u) | (codes & 0x80008000u);
}
inline constexpr uint32_t kFp8Power = 0x7B807B80u;  // 2^120, twice

// The same as two FP16 of 2^-8 times their values.
HB_HOST_DEVICE constexpr uint32_t fp8_as_f16(uint32_t codes) {
  return ((codes >> 1) & 0x3F803F80u) | (codes & 0x80008000u);
}
inline constexpr uint32_t kFp8PowerF16 = 0x5C005C00u;  // 2^8, twice

}  // namespace halfbyte::cuda
