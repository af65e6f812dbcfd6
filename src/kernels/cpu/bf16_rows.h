// How the AVX2 and AVX-512 linears see BF16, FP8 and FP32 weights and their activations; plain C++ for both.
//
// Weights: rows as they are stored, each beginning on a cache line; FP8: behind all rows, 2^8 times their scales (FP32), as
// their codes are multiplied as value * 2^-8 (kv_codes.h).
// Activations: FP32. BF16 weights are widened without shuffles, even k by a shift and odd k by a mask, so the
// activations beside them lie, in each run of 32, as 16 even k then 16 odd k. The k beyond the last whole run are in
// plain order.
#pragma once

#include "kernels/cpu/fp4_layout.h"
#include "tensor/quant_linear.h"

namespace halfbyte::cpu {

inline constexpr int64_t kRun = 32;  // the partial sums of docs/numerics.md 3.3

// Elements from one weight row to the next.
template <class Weight>
HB_ALWAYS_INLINE int64_t weight_stride(int64_t k) {
  constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(Weight));
  return (k + kLine - 1) / kLine * kLine;
}
// Floats from one activation row to the next.
HB_ALWAYS_INLINE int64_t activation_stride(int64_t k) {
  return (k + 15) / 16 * 16;
}

// Members of LinearKernel for weights of one format; kRound: x is rounded to BF16.
template <WeightFormat kFormat>
size_t plain_packed_bytes(int64_t n, int64_t k);
template <WeightFormat kFormat>
void pack_plain(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed);
size_t plain_activation_bytes(int64_t k);
template <WeightFormat kFormat, bool kRound>
void arrange_plain(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);

}  // namespace halfbyte::cpu
