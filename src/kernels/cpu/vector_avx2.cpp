// Norm, rope and SiLU on AVX2, bit-equal to ref/vector.cpp: a lane is a partial sum
// of the contract, or one element.
#include <immintrin.h>

#include "kernels/cpu/attention.h"
#include "kernels/cpu/exp32_avx2.h"
#include "kernels/cpu/kv_store.h"
#include "kernels/kernel_lists.h"

namespace halfbyte::cpu {
namespace {

void rmsnorm(const float* x, const float* weight, float eps, int64_t rows, int64_t k, float* y) {
  const int64_t whole = k / 8 * 8;
  for (int64_t m = 0; m < rows; ++m, x += k, y += k) {
    __m256 sums = _mm256_setzero_ps();
    for (int64_t i = 0; i < whole; i += 8) {
      const __m256 v = _mm256_loadu_ps(x + i);
      sums = _mm256_add_ps(sums, _mm256_mul_ps(v, v));
    }
    if (whole < k) {
      const __m256 v = load_some(x + whole, k - whole, 0.0f);
      sums = _mm256_add_ps(sums, _mm256_mul_ps(v, v));
    }
    const float mean = fold8(sums) / static_cast<float>(k) + eps;
    const float inverse = 1.0f / _mm_cvtss_f32(_mm_sqrt_ss(_mm_set_ss(mean)));
    const __m256 factor = _mm256_set1_ps(inverse);
    for (int64_t i = 0; i < whole; i += 8) {
      const __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), factor);
      _mm256_storeu_ps(y + i, _mm256_mul_ps(v, _mm256_loadu_ps(weight + i)));
    }
    for (int64_t i = whole; i < k; ++i) y[i] = (x[i] * inverse) * weight[i];
  }
}

void rope(float* x, const float* cos, const float* sin, int64_t heads, int64_t head_dim) {
  const int64_t half = head_dim / 2, whole = half / 8 * 8;
  for (int64_t h = 0; h < heads; ++h, x += head_dim) {
    for (int64_t i = 0; i < whole; i += 8) {
      const __m256 a = _mm256_loadu_ps(x + i), b = _mm256_loadu_ps(x + i + half);
      const __m256 c = _mm256_loadu_ps(cos + i), s = _mm256_loadu_ps(sin + i);
      _mm256_storeu_ps(x + i, _mm256_sub_ps(_mm256_mul_ps(a, c), _mm256_mul_ps(b, s)));
      _mm256_storeu_ps(x + i + half, _mm256_add_ps(_mm256_mul_ps(b, c), _mm256_mul_ps(a, s)));
    }
    for (int64_t i = whole; i < half; ++i) {
      const float a = x[i], b = x[i + half];
      x[i] = a * cos[i] - b * sin[i];
      x[i + half] = b * cos[i] + a * sin[i];
    }
  }
}

HB_ALWAYS_INLINE __m256 silu_times(__m256 x, __m256 up) {
  const __m256 e = exp32(_mm256_or_ps(x, _mm256_set1_ps(-0.0f)));  // of -|x|
  const __m256 top = _mm256_blendv_ps(x, _mm256_mul_ps(x, e), x);  // by the sign; -0 and NaN are the same either way
  return _mm256_mul_ps(_mm256_div_ps(top, _mm256_add_ps(_mm256_set1_ps(1.0f), e)), up);
}

void silu_mul(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, silu_times(_mm256_loadu_ps(gate + i), _mm256_loadu_ps(up + i)));
  if (i < n) store_some(out + i, n - i, silu_times(load_some(gate + i, n - i, 0.0f), load_some(up + i, n - i, 0.0f)));
}

}  // namespace

const VectorKernels& vector_kernels_avx2() {
  static constexpr AttentionKernels kAttention = {&attention_rows_avx2, &attention_cut_avx2, &attention_merge_avx2};
  static constexpr VectorKernels kKernels = {Isa::kAvx2, &rmsnorm,   &rope,         &silu_mul,
                                             kAttention, kAttention, &store_kv_avx2};
  return kKernels;
}

}  // namespace halfbyte::cpu
