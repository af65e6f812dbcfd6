// base/exp32.h on eight lanes: the same operations in the same order, so the same bits.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/fp4_layout.h"

namespace halfbyte::cpu {

HB_ALWAYS_INLINE __m256 exp32(__m256 x) {
  const __m256 shifter = _mm256_set1_ps(12582912.0f);
  const __m256 shifted = _mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), shifter);
  const __m256 n = _mm256_sub_ps(shifted, shifter);
  const __m256 r = _mm256_sub_ps(_mm256_sub_ps(x, _mm256_mul_ps(n, _mm256_set1_ps(0.693359375f))),
                                 _mm256_mul_ps(n, _mm256_set1_ps(-2.12194440e-4f)));
  __m256 p = _mm256_set1_ps(1.9875691500e-4f);
  p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(1.3981999507e-3f));
  p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(8.3334519073e-3f));
  p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(4.1665795894e-2f));
  p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(1.6666665459e-1f));
  p = _mm256_add_ps(_mm256_mul_ps(p, r), _mm256_set1_ps(5.0000001201e-1f));
  const __m256 y = _mm256_add_ps(_mm256_add_ps(_mm256_mul_ps(p, _mm256_mul_ps(r, r)), r), _mm256_set1_ps(1.0f));
  const __m256i biased = _mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127));
  const __m256 power = _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
  const __m256 gone = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_LT_OQ);
  return _mm256_andnot_ps(gone, _mm256_mul_ps(y, power));
}

// Lanes folded 4, 2, 1.
HB_ALWAYS_INLINE float fold8(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// The first `count` < 8 values, others `fill`.
HB_ALWAYS_INLINE __m256 load_some(const float* x, int64_t count, float fill) {
  alignas(32) float padded[8] = {fill, fill, fill, fill, fill, fill, fill, fill};
  for (int64_t i = 0; i < count; ++i) padded[i] = x[i];
  return _mm256_load_ps(padded);
}

HB_ALWAYS_INLINE void store_some(float* out, int64_t count, __m256 v) {
  alignas(32) float eight[8];
  _mm256_store_ps(eight, v);
  for (int64_t i = 0; i < count; ++i) out[i] = eight[i];
}

}  // namespace halfbyte::cpu
