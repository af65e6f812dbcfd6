// The reference of everything between the linears that works on one row: norm, rope, SiLU (docs/numerics.md 6).
#include <cmath>

#include "base/exp32.h"
#include "kernels/kernel_lists.h"
#include "kernels/ref/attention.h"
#include "kernels/ref/fold.h"

namespace halfbyte::ref {
namespace {

void rmsnorm(const float* x, const float* weight, float eps, int64_t rows, int64_t k, float* y) {
  for (int64_t m = 0; m < rows; ++m, x += k, y += k) {
    float sums[8] = {};
    for (int64_t i = 0; i < k; ++i) sums[i % 8] += x[i] * x[i];
    const float inverse = 1.0f / std::sqrt(fold(sums) / static_cast<float>(k) + eps);
    for (int64_t i = 0; i < k; ++i) y[i] = (x[i] * inverse) * weight[i];
  }
}

void rope(float* x, const float* cos, const float* sin, int64_t heads, int64_t head_dim) {
  const int64_t half = head_dim / 2;
  for (int64_t h = 0; h < heads; ++h, x += head_dim) {
    for (int64_t i = 0; i < half; ++i) {
      const float a = x[i], b = x[i + half];
      x[i] = a * cos[i] - b * sin[i];
      x[i + half] = b * cos[i] + a * sin[i];
    }
  }
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) {
    const float x = gate[i];
    const float e = exp32(x >= 0.0f ? -x : x);
    const float silu = (x >= 0.0f ? x : x * e) / (1.0f + e);
    out[i] = silu * up[i];
  }
}

}  // namespace

const VectorKernels& vector_kernels() {
  static constexpr AttentionKernels kAttention = {&attention_rows, &attention_cut, &attention_merge};
  static constexpr VectorKernels kKernels = {Isa::kRef, &rmsnorm, &rope, &silu_mul, kAttention, kAttention, &store_kv};
  return kKernels;
}

}  // namespace halfbyte::ref
