// Codes of the KV formats on 128- and 256-bit vectors, for files of every x86 instruction set from AVX2 up.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "formats/e4m3.h"
#include "kernels/cpu/fp4_layout.h"

namespace halfbyte::cpu {

HB_ALWAYS_INLINE __m128i load128(const void* p) {
  return _mm_loadu_si128(static_cast<const __m128i*>(p));
}
HB_ALWAYS_INLINE __m256i load256(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

// Twice the value of each 4-bit code.
static constexpr int8_t kDoubledE2M1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
static constexpr int8_t kDoubledE1M2[16] = {0, 1, 2, 3, 4, 5, 6, 7, 0, -1, -2, -3, -4, -5, -6, -7};

// Half the value of each E4M3 code, so that doubled elements times it are exact; NaN codes are NaN.
struct HalfE4M3 {
  float of[256];

  constexpr HalfE4M3() : of() {
    for (int code = 0; code < 256; ++code) {
      const float value = E4M3::decode(static_cast<uint8_t>(code));
      of[code] = value == value ? 0.5f * value : value;  // arithmetic on a NaN is no constant expression
    }
  }
};
static constexpr HalfE4M3 kHalfE4M3;

HB_ALWAYS_INLINE __m128i low_nibbles(__m128i pairs) {
  return _mm_and_si128(pairs, _mm_set1_epi8(15));
}
HB_ALWAYS_INLINE __m128i high_nibbles(__m128i pairs) {
  return _mm_and_si128(_mm_srli_epi16(pairs, 4), _mm_set1_epi8(15));
}
// The 16 codes of 8 bytes, one a byte.
HB_ALWAYS_INLINE __m128i nibbles_in_order(const void* p) {
  const __m128i pairs = _mm_loadl_epi64(static_cast<const __m128i*>(p));
  return _mm_unpacklo_epi8(low_nibbles(pairs), high_nibbles(pairs));
}

// E4M3 as FP16 with the same bits of exponent and fraction: value * 2^-8, subnormals too. NaN codes come out as 480 * 2^-8.
constexpr int16_t kE4M3InF16 = static_cast<int16_t>(0xBF80);
HB_ALWAYS_INLINE __m256i e4m3_to_f16(__m128i codes) {
  return _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7), _mm256_set1_epi16(kE4M3InF16));
}
// Of the low, and of the high byte of each 16-bit pair.
HB_ALWAYS_INLINE __m256i e4m3_high_to_f16(__m256i pairs) {
  return _mm256_and_si256(_mm256_srai_epi16(pairs, 1), _mm256_set1_epi16(kE4M3InF16));
}
HB_ALWAYS_INLINE __m256i e4m3_low_to_f16(__m256i pairs) {
  return e4m3_high_to_f16(_mm256_slli_epi16(pairs, 8));
}

// Whether any E4M3 code seen was NaN: then its number must be mended by hand.
struct Fp8Nans {
  __m256i largest = _mm256_setzero_si256();

  HB_ALWAYS_INLINE void see(__m256i codes) {
    largest = _mm256_max_epu8(largest, _mm256_and_si256(codes, _mm256_set1_epi8(0x7F)));
  }
  HB_ALWAYS_INLINE bool any() const {
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(largest, _mm256_set1_epi8(0x7F))) != 0;
  }
};

}  // namespace halfbyte::cpu
