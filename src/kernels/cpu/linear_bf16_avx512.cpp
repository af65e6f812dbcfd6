#include <immintrin.h>

#include "kernels/cpu/linear_bf16.h"
#include "kernels/kernel_lists.h"

namespace halfbyte::cpu {
namespace {

// Two vectors of 16. BF16: even k, then odd k.
struct Avx512 {
  static constexpr int kSums = 8;  // that fit in the registers
  struct Sums {
    __m512 v[2];
  };

  static HB_ALWAYS_INLINE Sums zero() { return {{_mm512_setzero_ps(), _mm512_setzero_ps()}}; }
  static HB_ALWAYS_INLINE Sums widen(const uint16_t* w) {
    const __m512i a = _mm512_loadu_si512(w);
    const __m512i odd = _mm512_set1_epi32(static_cast<int32_t>(0xFFFF0000u));
    return {{_mm512_castsi512_ps(_mm512_slli_epi32(a, 16)), _mm512_castsi512_ps(_mm512_and_si512(a, odd))}};
  }
  static HB_ALWAYS_INLINE Sums widen(const uint8_t* w) {
    return {{_mm512_cvtph_ps(e4m3_to_f16(load128(w))), _mm512_cvtph_ps(e4m3_to_f16(load128(w + 16)))}};
  }
  static HB_ALWAYS_INLINE Sums widen(const float* w) { return {{_mm512_loadu_ps(w), _mm512_loadu_ps(w + 16)}}; }
  static HB_ALWAYS_INLINE void multiply_add(const float* x, const Sums& w, Sums& sums) {
    for (int i = 0; i < 2; ++i) sums.v[i] = _mm512_fmadd_ps(_mm512_loadu_ps(x + 16 * i), w.v[i], sums.v[i]);
  }
  static HB_ALWAYS_INLINE void store(const Sums& sums, float* out) {
    for (int i = 0; i < 2; ++i) _mm512_storeu_ps(out + 16 * i, sums.v[i]);
  }
  // Lanes i and i + 8.
  static HB_ALWAYS_INLINE __m256 half(__m512 v) {
    const __m256 high = _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(v), 1));
    return _mm256_add_ps(_mm512_castps512_ps256(v), high);
  }

  // Lanes in order of k: 16, 8, then fold8.
  static HB_ALWAYS_INLINE float fold(const Sums& s) { return fold8(half(_mm512_add_ps(s.v[0], s.v[1]))); }
  static HB_ALWAYS_INLINE float fold_even_odd(const Sums& s) { return fold8(half(s.v[0]), half(s.v[1])); }
};

}  // namespace

std::span<const LinearKernel> linear_bf16_avx512() {
  static constexpr LinearKernel kKernels[] = {
      LinearPlain<Avx512, WeightFormat::kF32>::kernel<false>("linear_f32_f32_avx512", Isa::kAvx512),
      LinearPlain<Avx512, WeightFormat::kF32>::kernel<true>("linear_f32_a16_avx512", Isa::kAvx512),
      LinearPlain<Avx512, WeightFormat::kBF16>::kernel<false>("linear_bf16_f32_avx512", Isa::kAvx512),
      LinearPlain<Avx512, WeightFormat::kBF16>::kernel<true>("linear_bf16_a16_avx512", Isa::kAvx512),
      LinearPlain<Avx512, WeightFormat::kFP8>::kernel<false>("linear_fp8_f32_avx512", Isa::kAvx512),
      LinearPlain<Avx512, WeightFormat::kFP8>::kernel<true>("linear_fp8_a16_avx512", Isa::kAvx512),
  };
  return kKernels;
}

}  // namespace halfbyte::cpu
