// How the linears of every vector set see FP4 weights and integer activations. One layout for all, so that a vector lane
// is always an output row and every lane computes the contract's sums alone.
//
// Weights: tiles of 16 rows; a tile is a run of groups of 8 blocks (the groups of docs/numerics.md 3, step 3), which a
// thread reads front to back. A group holds the codes of its blocks, then their scales:
//
//   codes   A block is kBlock/8 vectors of 64 bytes, vector v for k = 8v .. 8v+7. Byte 4r+i of it holds the codes of row
//           r at k = 8v+i (low nibble) and 8v+4+i (high nibble): a 32-bit lane is a row, 4 codes times 4 activations.
//   scales  A block is 16 bytes, one a row.
//           NVFP4: (exponent + 9) << 3 | 3 fraction bits, so that an E4M3 subnormal, too, becomes a normal FP32 by a
//           shift and an addition; a negative scale has its sign in the codes, a zero scale has zero codes.
//           MXFP4: the E8M0 byte; a block of zero codes has 127.
//
// The last group of a tile is as long as its blocks, rounded up to 64 bytes. Rows beyond n have zero codes.
// Bytes a weight: NVFP4 .5625, MXFP4 .53125.
//
// Activations: a row is a header, corrections and scales of its blocks, and the values as kPieces signed bytes a value:
//
//   value = sum over p of piece[p] * 256^(kPieces-1-p)      A4: 1 piece, doubled E2M1; A16: 2 pieces; A8: 3, E4M3 * 512
//
// 16 values lie together, [kPieces][16] bytes. Weights are looked up as 2w + 12, unsigned bytes for the multiply-add
// instructions: sum 2w x = sum (2w+12) x - 12 sum x, and the correction -12 sum x is made once a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

// Only functions that are always inlined may be called from files compiled for one instruction set: any other inline
// function could be the copy that the linker keeps for all machines. (The tests' plain form of these files inlines
// nothing.)
#if !defined(HB_ALWAYS_INLINE)
#define HB_ALWAYS_INLINE inline __attribute__((always_inline))
#define HB_INLINE_LAMBDA __attribute__((always_inline))
#endif

namespace halfbyte::cpu {

inline constexpr int64_t kTileRows = 16;
inline constexpr int64_t kGroupBlocks = 8;

// body(0), ..., body(7) with the index as a compile-time constant: a loop that is unrolled for certain, so that its
// arrays become registers. `body` is a lambda marked HB_INLINE_LAMBDA.
template <class Body>
HB_ALWAYS_INLINE void for_each_of_group(Body&& body) {
  body(std::integral_constant<int64_t, 0>{});
  body(std::integral_constant<int64_t, 1>{});
  body(std::integral_constant<int64_t, 2>{});
  body(std::integral_constant<int64_t, 3>{});
  body(std::integral_constant<int64_t, 4>{});
  body(std::integral_constant<int64_t, 5>{});
  body(std::integral_constant<int64_t, 6>{});
  body(std::integral_constant<int64_t, 7>{});
}

// 2w + 12 of the 16 E2M1 codes.
inline constexpr uint8_t kDoubledPlus12[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

struct Nvfp4Layout {
  static constexpr bool kNvfp4 = true;
  static constexpr int64_t kBlock = 16;
};
struct Mxfp4Layout {
  static constexpr bool kNvfp4 = false;
  static constexpr int64_t kBlock = 32;
};

template <class L>
struct Fp4Tiles {
  static constexpr int64_t kBlockCodes = kTileRows * L::kBlock / 2;  // bytes of codes of a block of 16 rows: 128, 256
  static constexpr int64_t kBlockBytes = kBlockCodes + kTileRows;
  static constexpr int64_t kGroupBytes = kGroupBlocks * kBlockBytes;  // 1152, 2176: whole cache lines
  static_assert(kGroupBytes % 64 == 0);

  static HB_ALWAYS_INLINE int64_t blocks(int64_t k) { return (k + L::kBlock - 1) / L::kBlock; }
  static HB_ALWAYS_INLINE int64_t tile_bytes(int64_t k) {
    const int64_t rest = blocks(k) % kGroupBlocks;
    return blocks(k) / kGroupBlocks * kGroupBytes + (rest * kBlockBytes + 63) / 64 * 64;
  }
  static HB_ALWAYS_INLINE int64_t tiles(int64_t n) { return (n + kTileRows - 1) / kTileRows; }
};

// One activation row. Offsets are multiples of 64 bytes.
template <class L, int kPieces>
struct IntRow {
  static HB_ALWAYS_INLINE int64_t padded_blocks(int64_t k) { return (Fp4Tiles<L>::blocks(k) + 15) / 16 * 16; }
  static HB_ALWAYS_INLINE int64_t bytes(int64_t k) {
    return 64 + padded_blocks(k) * 8 + (Fp4Tiles<L>::blocks(k) * L::kBlock * kPieces + 63) / 64 * 64;
  }

  const float* alpha;         // [1] tensor scale of the row; 1 where the mode has none
  const int32_t* correction;  // [blocks] -12 * sum of the block's values
  const float* scale;         // [blocks] block scale; for NVFP4 times kUnit: what an integer product stands for
  const int8_t* pieces;       // [blocks * block / 16][kPieces][16]

  static constexpr int64_t kCorrectionOffset = 64;
  static HB_ALWAYS_INLINE int64_t scale_offset(int64_t k) { return kCorrectionOffset + padded_blocks(k) * 4; }
  static HB_ALWAYS_INLINE int64_t pieces_offset(int64_t k) { return scale_offset(k) + padded_blocks(k) * 4; }

  static HB_ALWAYS_INLINE IntRow at(const std::byte* row, int64_t k) {
    return {reinterpret_cast<const float*>(row), reinterpret_cast<const int32_t*>(row + kCorrectionOffset),
            reinterpret_cast<const float*>(row + scale_offset(k)),
            reinterpret_cast<const int8_t*>(row + pieces_offset(k))};
  }
};

// An integer block sum stands for sum * kUnit: weights are doubled; A4 values doubled, A8 values times 512.
template <int kPieces>
inline constexpr float kUnit = kPieces == 1   ? 0.25f
                               : kPieces == 2 ? 0.5f
                                              : 0x1p-10f;

}  // namespace halfbyte::cpu
