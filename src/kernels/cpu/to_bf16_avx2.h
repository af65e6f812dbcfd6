// BF16 rounding of vectors, for files compiled for AVX2.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/fp4_layout.h"

namespace halfbyte::cpu {

// Eight BF16 codes in the upper halves of 32-bit lanes: x rounded to nearest even, NaN kept and made quiet.
HB_ALWAYS_INLINE __m256 round_to_bf16(__m256 x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i kept = _mm256_blendv_epi8(rounded, quiet, nan);
  return _mm256_castsi256_ps(_mm256_and_si256(kept, _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u))));
}

}  // namespace halfbyte::cpu
