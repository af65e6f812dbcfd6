// Sixteen lanes of FP32 on AVX-512, and base/exp32.h on them.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/exp32_vectors.h"

namespace halfbyte::cpu {

struct SixteenFloats {
  static constexpr int64_t kWidth = 16;
  using Floats = __m512;

  static HB_ALWAYS_INLINE Floats set(float x) { return _mm512_set1_ps(x); }
  static HB_ALWAYS_INLINE Floats load(const float* p) { return _mm512_loadu_ps(p); }
  static HB_ALWAYS_INLINE void store(float* p, Floats v) { _mm512_storeu_ps(p, v); }
  static HB_ALWAYS_INLINE Floats add(Floats a, Floats b) { return _mm512_add_ps(a, b); }
  static HB_ALWAYS_INLINE Floats sub(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
  static HB_ALWAYS_INLINE Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  static HB_ALWAYS_INLINE Floats div(Floats a, Floats b) { return _mm512_div_ps(a, b); }

  // As EightFloats::times_power.
  static HB_ALWAYS_INLINE Floats times_power(Floats y, Floats shifted, Floats x) {
    const __m512i biased = _mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(127));
    const __m512 power = _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
    const __mmask16 stays = _mm512_cmp_ps_mask(x, set(-87.0f), _CMP_NLT_UQ);
    return _mm512_maskz_mul_ps(stays, y, power);
  }
};

HB_ALWAYS_INLINE __m512 exp32(__m512 x) {
  return exp32_of<SixteenFloats>(x);
}

}  // namespace halfbyte::cpu
