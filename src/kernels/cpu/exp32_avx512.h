// base/exp32.h on sixteen lanes: the same operations in the same order, so the same bits.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/fp4_layout.h"

namespace halfbyte::cpu {

HB_ALWAYS_INLINE __m512 exp32(__m512 x) {
  const __m512 shifter = _mm512_set1_ps(12582912.0f);
  const __m512 shifted = _mm512_add_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), shifter);
  const __m512 n = _mm512_sub_ps(shifted, shifter);
  const __m512 r = _mm512_sub_ps(_mm512_sub_ps(x, _mm512_mul_ps(n, _mm512_set1_ps(0.693359375f))),
                                 _mm512_mul_ps(n, _mm512_set1_ps(-2.12194440e-4f)));
  __m512 p = _mm512_set1_ps(1.9875691500e-4f);
  p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(1.3981999507e-3f));
  p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(8.3334519073e-3f));
  p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(4.1665795894e-2f));
  p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(1.6666665459e-1f));
  p = _mm512_add_ps(_mm512_mul_ps(p, r), _mm512_set1_ps(5.0000001201e-1f));
  const __m512 y = _mm512_add_ps(_mm512_add_ps(_mm512_mul_ps(p, _mm512_mul_ps(r, r)), r), _mm512_set1_ps(1.0f));
  const __m512i biased = _mm512_add_epi32(_mm512_castps_si512(shifted), _mm512_set1_epi32(127));
  const __m512 power = _mm512_castsi512_ps(_mm512_slli_epi32(biased, 23));
  const __mmask16 stays = _mm512_cmp_ps_mask(x, _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
  return _mm512_maskz_mul_ps(stays, y, power);
}

}  // namespace halfbyte::cpu
