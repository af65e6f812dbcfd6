// The vectors of attention_tiles.h on AVX-512: for the files of that instruction set and of AMX.
#pragma once

#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/exp32_avx2.h"
#include "kernels/cpu/exp32_avx512.h"

namespace halfbyte::cpu {
namespace {  // a copy a file: none that the linker could keep for all machines

struct Avx512 : SixteenFloats {
  using Sixteen = __m512;
  using Words = __m512i;

  template <int kRows>
  static constexpr int vectors() {
    return 4;  // 6 rows: 24 sums, 4 vectors, a factor
  }

  static HB_ALWAYS_INLINE Floats zero() { return _mm512_setzero_ps(); }
  static HB_ALWAYS_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }

  static HB_ALWAYS_INLINE Sixteen load16(const float* p) { return load(p); }
  static HB_ALWAYS_INLINE void store16(float* p, Sixteen v) { store(p, v); }
  static HB_ALWAYS_INLINE Sixteen times(Sixteen v, Sixteen w) { return mul(v, w); }
  static HB_ALWAYS_INLINE Sixteen times(Sixteen v, float x) { return mul(v, set(x)); }

  static HB_ALWAYS_INLINE Words load_words(const std::byte* p) { return _mm512_loadu_si512(p); }
  static HB_ALWAYS_INLINE Sixteen low_bf16(Words w) { return _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)); }
  static HB_ALWAYS_INLINE Sixteen high_bf16(Words w) {
    return _mm512_castsi512_ps(_mm512_and_si512(w, _mm512_set1_epi32(static_cast<int32_t>(0xFFFF0000u))));
  }
  static HB_ALWAYS_INLINE Sixteen from_bf16(__m256i v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
  }
  static HB_ALWAYS_INLINE Sixteen from_f16(__m256i v) { return _mm512_cvtph_ps(v); }
  static HB_ALWAYS_INLINE Sixteen from_i8(__m128i v) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(v)); }

  // As Avx2::softmax. The sum's eight lanes are the contract's, so a vector's halves are added one after the other.
  static void softmax(float* p, int64_t count, float* largest, float* sum) {
    constexpr float kMinusInfinity = -__builtin_inff();
    for (int64_t j = count; j % 16 != 0; ++j) p[j] = kMinusInfinity;
    __m512 m = set(kMinusInfinity);
    for (int64_t j = 0; j < count; j += 16) m = _mm512_max_ps(load(p + j), m);  // a NaN leaves m as it is
    alignas(64) float lanes[16];
    _mm512_store_ps(lanes, m);
    float max = lanes[0];
    for (float v : lanes) max = v > max ? v : max;
    __m256 sums = _mm256_setzero_ps();
    for (int64_t j = 0; j < count; j += 16) {
      const __m512 e = exp32(_mm512_sub_ps(load(p + j), set(max)));
      store(p + j, e);
      sums = _mm256_add_ps(sums, _mm512_castps512_ps256(e));
      sums = _mm256_add_ps(sums, _mm512_extractf32x8_ps(e, 1));
    }
    *largest = max;
    *sum = fold8(sums);
  }
};

}  // namespace
}  // namespace halfbyte::cpu
