// Layouts that the small-M NVFP4 kernels read: weight steps, activations, and the split of the work over the device.
//
// Weights   A step is 16 rows x 128 K (8 NVFP4 blocks a row) in kStepBytes = 1152 bytes: 8 words a lane, each the A
// operand of
//           one mma.sync m16n8k16 (one k16 step is one block), then 128 block scales. Eight row tiles make a panel of
//           128 rows; memory order is [panel][k step][tile 0..7][step], so a run of k steps of a panel is one
//           contiguous read.
// Word      bits of the codes, mixed so that two instructions give two weights each (see kShifts).
// Scale     a byte e(5) m(3), exponent bias 15: every E4M3 value is a normal number there. For rows g and g + 8, byte
//           16 g + 4 (b / 2) + (b % 2) + (row < 8 ? 0 : 2) belongs to block b.
// x^        BF16 times 2^kXExponent, per k step [block 0..7][half 0..1][column 0..M-1][8 values], then 128 zero bytes when M < 8.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "formats/rounding.h"

namespace halfbyte::cuda {

inline constexpr int kTileRows = 16;
inline constexpr int kBlock = 16;
inline constexpr int kBlocksPerStep = 8;
inline constexpr int kStepK = kBlock * kBlocksPerStep;
inline constexpr int kCodeBytes = kTileRows * kStepK / 2;
inline constexpr int kStepBytes = kCodeBytes + kTileRows * kBlocksPerStep;
inline constexpr int kPanelTiles = 8;
inline constexpr int kPanelRows = kPanelTiles * kTileRows;
inline constexpr int kPanelStepBytes = kPanelTiles * kStepBytes;
static_assert(kStepBytes == 1152);

// E2M1 in a BF16 half: sign in bit 15, exponent and mantissa in bits 8..6; its value is then 2^-126 of the true one.
inline constexpr uint32_t kPairMask = 0x81C081C0u;
inline constexpr int kPairExponent = -126;
// x^ is held times 2^50: products with such weights are FP32 normals from |x^| = 2^-49 on, and 2^77 still fits.
inline constexpr int kXExponent = 50;

HB_HOST_DEVICE constexpr uint32_t rotate_left(uint32_t w, int by) {
  return (w << by) | (w >> (32 - by));
}
// Registers 0..3 of the A operand from a word, as the kernel computes them: 8 instructions for 8 weights. Found by a
// search over all choices of shifts and rotations of which the map below has full rank.
HB_HOST_DEVICE constexpr uint32_t word_register(uint32_t w, int i) {
  const uint32_t bits = i == 0   ? w ^ (w << 2)
                        : i == 1 ? w ^ (w << 6)
                        : i == 2 ? w ^ rotate_left(w, 12)
                                 : rotate_left(w, 24);
  return bits & kPairMask;
}

// The map word -> 32 code bits is linear over GF(2); where it has full rank each code bit has one column in the inverse:
// the word bits that it sets. Else zeros. Code i sits in the low half of register i, code 4 + i in the high half, its sign
// in bit 15, its magnitude from `magnitude_bit` on. register_of(word, i): a register as the kernel computes it.
template <class RegisterOf>
constexpr std::array<uint32_t, 32> invert_word_map(RegisterOf register_of, int magnitude_bit) {
  std::array<uint64_t, 32> rows{};  // low 32 bits: equation over the word's bits; high 32 bits: which code bit it gives
  for (int c = 0; c < 8; ++c) {
    for (int b = 0; b < 4; ++b) {
      const int target = (b == 3 ? 15 : magnitude_bit + b) + (c >= 4 ? 16 : 0);
      uint64_t equation = 0;
      for (int p = 0; p < 32; ++p) {
        if ((register_of(1u << p, c & 3) >> target) & 1u) equation |= uint64_t{1} << p;
      }
      rows[4 * c + b] = equation | (uint64_t{1} << (32 + 4 * c + b));
    }
  }
  for (int p = 0; p < 32; ++p) {
    int pivot = p;
    while (pivot < 32 && ((rows[pivot] >> p) & 1u) == 0) ++pivot;
    if (pivot == 32) return {};  // singular: caught by the static_assert of whoever calls
    const uint64_t swapped = rows[p];
    rows[p] = rows[pivot];
    rows[pivot] = swapped;
    for (int r = 0; r < 32; ++r) {
      if (r != p && ((rows[r] >> p) & 1u)) rows[r] ^= rows[p];
    }
  }
  std::array<uint32_t, 32> columns{};
  for (int p = 0; p < 32; ++p) {
    for (int b = 0; b < 32; ++b) {
      if ((rows[p] >> (32 + b)) & 1u) columns[b] |= 1u << p;
    }
  }
  return columns;
}

inline constexpr std::array<uint32_t, 32> kWordColumns = invert_word_map(word_register, 6);
static_assert(kWordColumns[0] != 0, "the word code must be invertible");

// E4M3 scale (finite, >= 0) as the stored byte; a zero scale has no stored form (the packer zeroes the block's codes).
constexpr uint8_t scale_byte(uint8_t e4m3) {
  const int e = e4m3 >> 3;
  const int m = e4m3 & 7;
  if (e != 0) return static_cast<uint8_t>(((e + 8) << 3) | m);
  if (m == 0) return 15 << 3;
  const int top = std::bit_width(static_cast<unsigned>(m)) - 1;  // m = 2^top (1 + rest): value m 2^-9
  return static_cast<uint8_t>(((top + 6) << 3) | ((m << (3 - top)) & 7));
}

// The kernel reads a scale byte as FP32 bits kScaleBias | byte << 20: 2^kScaleExponent of the true value.
inline constexpr uint32_t kScaleBias = 0x50000000u;
inline constexpr uint32_t kScaleMask = 0x0FF00000u;
inline constexpr int kScaleExponent = 48;
inline constexpr float kUnscale = 0x1p28f;  // undoes kPairExponent, kXExponent and kScaleExponent; exact
static_assert(kPairExponent + kXExponent + kScaleExponent == -28);

// Bytes of x^ for one k step and m columns.
HB_HOST_DEVICE constexpr int x_chunk_bytes(int m) {
  return m * kStepK * 2 + (m < 8 ? 128 : 0);
}
// Offset of value k (0..127) of column c in the chunk.
HB_HOST_DEVICE constexpr int x_offset(int m, int c, int k) {
  return (((k / 16) * 2 + (k % 16) / 8) * m + c) * 16 + (k % 8) * 2;
}

// Work split: total k steps of all panels in memory order, an equal contiguous run for each of `runs` thread blocks.
// It depends on the shape and `runs` only, never on M: the order of sums of an output is fixed by it.
struct Split {
  int total;
  int runs;
  int quotient;
  int remainder;

  static Split of(int total_steps, int run_count) {
    return {total_steps, run_count, total_steps / run_count, total_steps % run_count};
  }
  HB_HOST_DEVICE int begin(int run) const { return run * quotient + (run < remainder ? run : remainder); }
  HB_HOST_DEVICE int owner(int step) const {
    const int head = remainder * (quotient + 1);
    return step < head ? step / (quotient + 1) : remainder + (step - head) / quotient;
  }
  // Slots of partial sums that an output may have: runs that can meet one panel of k_steps steps.
  int slots(int k_steps) const {
    int most = 1;
    for (int first = 0; first < total; first += k_steps) {
      const int here = owner(first + k_steps - 1) - owner(first) + 1;
      most = here > most ? here : most;
    }
    return most;
  }
};

}  // namespace halfbyte::cuda
