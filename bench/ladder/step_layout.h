// The layouts of the ladder's kernels: those of the product (weight steps, x^, the split of the work), but weights and x^
// are FP16, in two word codes that the ladder compares.
#pragma once

#include "kernels/cuda/step_layout.h"

namespace halfbyte::ladder {

using cuda::kBlock;
using cuda::kBlocksPerStep;
using cuda::kCodeBytes;
using cuda::kPanelRows;
using cuda::kPanelStepBytes;
using cuda::kPanelTiles;
using cuda::kScaleMask;
using cuda::kStepBytes;
using cuda::kStepK;
using cuda::kTileRows;
using cuda::scale_byte;
using cuda::Split;
using cuda::x_chunk_bytes;
using cuda::x_offset;

// E2M1 in an FP16 half: sign in bit 15, exponent and mantissa in bits 11..9; its value is then 2^-14 of the true one.
inline constexpr uint32_t kPairMask = 0x8E008E00u;
inline constexpr int kPairExponent = -14;

enum class WordCode {
  kShifted,  // fields in their own bits; 11 instructions for 8 weights
  kMixed,  // register i = (w ^ shift_i(w)) & kPairMask with shifts >> 3, << 2, << 6, << 9; 8 instructions for 8 weights
};

// Registers 0..3 of the A operand from a word, as the kernel computes them.
HB_HOST_DEVICE constexpr uint32_t mixed_register(uint32_t w, int i) {
  const uint32_t shifted = i == 0 ? w >> 3 : i == 1 ? w << 2 : i == 2 ? w << 6 : w << 9;
  return (w ^ shifted) & kPairMask;
}
HB_HOST_DEVICE constexpr uint32_t shifted_register(uint32_t w, int i) {
  if (i == 0) return w & kPairMask;
  if (i == 1) return (w << 3) & kPairMask;
  return i == 2 ? ((w << 1) & 0x80008000u) | ((w << 6) & 0x0E000E00u)
                : ((w << 2) & 0x80008000u) | ((w << 9) & 0x0E000E00u);
}

inline constexpr std::array<uint32_t, 32> kMixedColumns = cuda::invert_word_map(mixed_register, 9);
inline constexpr std::array<uint32_t, 32> kShiftedColumns = cuda::invert_word_map(shifted_register, 9);
static_assert(kMixedColumns[0] != 0 && kShiftedColumns[0] != 0, "the word codes must be invertible");

// codes: eight 4-bit codes, code i in bits 4i.
constexpr uint32_t encode_word(uint32_t codes, WordCode code) {
  uint32_t w = 0;
  for (int b = 0; b < 32; ++b) {
    if ((codes >> b) & 1u) w ^= (code == WordCode::kMixed ? kMixedColumns : kShiftedColumns)[b];
  }
  return w;
}

// A scale byte is read as FP32 bits kScaleBias | byte << 20: 2^kScaleExponent of the true value.
inline constexpr uint32_t kScaleBias = 0x30000000u;
inline constexpr int kScaleExponent = -16;
inline constexpr float kUnscale = 0x1p30f;  // undoes kPairExponent and kScaleExponent; exact

}  // namespace halfbyte::ladder
