// The reference of everything between the linears that works on one row: norm, rope, SiLU, logits statistics
// (docs/numerics.md 4 and 6).
#include <algorithm>
#include <cmath>

#include "base/exp32.h"
#include "formats/bf16.h"
#include "kernels/kernel_lists.h"
#include "kernels/ref/attention.h"

namespace halfbyte::ref {
namespace {

// lanes[i] += lanes[i + half], halving: the fold of the contract.
template <class T, int kLanes>
T fold(T (&lanes)[kLanes]) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

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

LogitsStats logits_stats(const float* logits, int64_t n) {
  LogitsStats stats;
  stats.max = -INFINITY;  // a NaN is never the maximum; it makes z NaN
  for (int64_t i = 0; i < n; ++i) {
    if (logits[i] > stats.max) {
      stats.max = logits[i];
      stats.argmax = i;
    }
  }
  for (int64_t chunk = 0; chunk < n; chunk += 4096) {
    double z[32] = {}, s[32] = {};
    for (int64_t i = chunk; i < std::min<int64_t>(chunk + 4096, n); ++i) {
      const float d = logits[i] - stats.max;
      const double e = exp32(d);
      z[i % 32] += e;
      s[i % 32] += e * static_cast<double>(d < -88.0f ? -88.0f : d);  // e is 0 there; -infinity must not make 0 * inf
    }
    stats.z += fold(z);
    stats.s += fold(s);
  }
  return stats;
}

void to_bf16(const float* x, int64_t n, uint16_t* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = BF16::encode(x[i]);
}

}  // namespace

const VectorKernels& vector_kernels() {
  static constexpr VectorKernels kKernels = {Isa::kRef,  &rmsnorm,      &rope,   &silu_mul,
                                             &attention, &logits_stats, &to_bf16};
  return kKernels;
}

}  // namespace halfbyte::ref
