// Activations of decode rows for AMX: the integer form of fp4_layout.h, which one row alone is multiplied in, and behind
// it the same values as BF16, which several rows are. Plain C++; the functions are compiled for AVX-512.
//
// The BF16 part holds, for each block, kPieces runs of kBlock values: A4 the E2M1 values, A16 the high piece times 256
// and the low piece. Each has 8 significant bits, so it is exact. NVFP4 rows carry the block's scale in the values (a power
// of two, or 4 more bits), MXFP4 rows leave it to the kernel, since a product of two E8M0 scales may leave FP32's range.
// Within each 16 the order is that of the weights' pairs (linear_decode_amx.h).
#pragma once

#include "kernels/cpu/fp4_layout.h"

namespace halfbyte::cpu {

template <class L, int kPieces>
struct DecodeRow {
  using Integers = IntRow<L, kPieces>;
  static constexpr int64_t kRunBytes = L::kBlock * 2;
  static constexpr int64_t kBlockBytes = kPieces * kRunBytes;
  // uint32: not 0 where a block's sums in units of its scale could leave FP32's range, so that the integers must be used.
  static constexpr int64_t kWideOffset = 4;

  static HB_ALWAYS_INLINE int64_t values_offset(int64_t k) { return Integers::bytes(k); }
  // An odd number of cache lines: rows at the same k lie in different cache sets.
  static HB_ALWAYS_INLINE int64_t bytes(int64_t k) {
    return ((Integers::bytes(k) + Fp4Tiles<L>::blocks(k) * kBlockBytes + 63) / 64 | 1) * 64;
  }
};

size_t decode_nvfp4_a16_bytes(int64_t k);
size_t decode_nvfp4_a4_bytes(int64_t k);
size_t decode_mxfp4_a16_bytes(int64_t k);
size_t decode_mxfp4_a4_bytes(int64_t k);

// Signatures of LinearKernel::quantize.
void quantize_decode_nvfp4_a16(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_decode_nvfp4_a4(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_decode_mxfp4_a16(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_decode_mxfp4_a4(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);

}  // namespace halfbyte::cpu
