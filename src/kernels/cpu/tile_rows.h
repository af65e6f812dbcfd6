// Activations of the tile form (docs/numerics.md 3.5): BF16 rows for AMX. Plain C++; the functions are compiled for
// AVX-512.
//
// A row is a header of 64 bytes with its tensor scale, then steps of 32 values. Beside FP4 weights a step interleaves
// its two halves (k, k + 16, k + 1, k + 17, ...), so that each of the two sums of a tile instruction stays within one
// NVFP4 block; beside BF16 weights it is in plain order. Values beyond k are 0. The number of cache lines is odd: 16
// rows at the same k, which one tile load reads, then lie in 16 different cache sets whatever k is.
#pragma once

#include "kernels/cpu/fp4_layout.h"

namespace halfbyte::cpu {

inline constexpr int64_t kTileStep = 32;         // k of one tile instruction
inline constexpr int64_t kTileHeaderBytes = 64;  // float alpha
inline constexpr int64_t kTileStepBytes = 64;

HB_ALWAYS_INLINE int64_t tile_steps(int64_t k) {
  return (k + kTileStep - 1) / kTileStep;
}
HB_ALWAYS_INLINE int64_t tile_row_bytes(int64_t k) {
  return ((tile_steps(k) + 1) | 1) * kTileStepBytes;
}

size_t tile_activation_bytes(int64_t k);

// Signatures of LinearKernel::quantize. `_a16`: rounded to BF16; beside FP4 weights a row with a NaN or an infinity has
// alpha = NaN and zeros. The others hold what the integer forms of fp4_layout.h hold, as BF16 values, exactly.
void quantize_tile_bf16_a16(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_tile_fp4_a16(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_tile_nvfp4_a8(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_tile_nvfp4_a4(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_tile_mxfp4_a8(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_tile_mxfp4_a4(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);

}  // namespace halfbyte::cpu
