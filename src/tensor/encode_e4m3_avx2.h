// E4M3::encode of eight numbers, for files that are compiled for AVX2: weights at load and the KV cache.
#pragma once

#include <immintrin.h>

namespace halfbyte {

// A code in each 32-bit lane. Always inlined: a copy of its own would be one that older machines cannot run
// (tests/kernels/isa_symbols_test.cmake).
inline __attribute__((always_inline)) __m256i encode_e4m3(__m256 x) {
  const __m256i bits = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF));
  const __m256 size = _mm256_castsi256_ps(bits);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 20), _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFFF)), odd);
  const __m256i normal = _mm256_min_epi32(_mm256_sub_epi32(_mm256_srli_epi32(rounded, 20), _mm256_set1_epi32(120 << 3)),
                                          _mm256_set1_epi32(0x7E));
  // Larger numbers convert to nonsense, which is not chosen.
  const __m256i tiny = _mm256_cvtps_epi32(_mm256_mul_ps(size, _mm256_set1_ps(512.0f)));
  const __m256 is_tiny = _mm256_cmp_ps(size, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ);
  const __m256i body = _mm256_blendv_epi8(normal, tiny, _mm256_castps_si256(is_tiny));
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(x), 24), _mm256_set1_epi32(0x80));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(_mm256_or_si256(body, sign), _mm256_set1_epi32(0x7F), nan);
}

}  // namespace halfbyte
