// Eight lanes of FP32 on AVX2, and base/exp32.h on them.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/exp32_vectors.h"

namespace halfbyte::cpu {

struct EightFloats {
  static constexpr int64_t kWidth = 8;
  using Floats = __m256;

  static HB_ALWAYS_INLINE Floats set(float x) { return _mm256_set1_ps(x); }
  static HB_ALWAYS_INLINE Floats load(const float* p) { return _mm256_loadu_ps(p); }
  static HB_ALWAYS_INLINE void store(float* p, Floats v) { _mm256_storeu_ps(p, v); }
  static HB_ALWAYS_INLINE Floats add(Floats a, Floats b) { return _mm256_add_ps(a, b); }
  static HB_ALWAYS_INLINE Floats sub(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
  static HB_ALWAYS_INLINE Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
  static HB_ALWAYS_INLINE Floats div(Floats a, Floats b) { return _mm256_div_ps(a, b); }

  // y * 2^n, n in the low bits of `shifted`; 0 where x < -87.
  static HB_ALWAYS_INLINE Floats times_power(Floats y, Floats shifted, Floats x) {
    const __m256i biased = _mm256_add_epi32(_mm256_castps_si256(shifted), _mm256_set1_epi32(127));
    const __m256 power = _mm256_castsi256_ps(_mm256_slli_epi32(biased, 23));
    return _mm256_andnot_ps(_mm256_cmp_ps(x, set(-87.0f), _CMP_LT_OQ), mul(y, power));
  }
};

HB_ALWAYS_INLINE __m256 exp32(__m256 x) {
  return exp32_of<EightFloats>(x);
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
