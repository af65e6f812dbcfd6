#include <immintrin.h>

#include "kernels/cpu/linear_bf16.h"
#include "kernels/kernel_lists.h"

namespace halfbyte::cpu {
namespace {

// Four vectors of 8. BF16: even k of both halves, then odd k.
struct Avx2 {
  static constexpr int kSums = 2;  // that fit in the registers
  struct Sums {
    __m256 v[4];
  };

  static HB_ALWAYS_INLINE Sums zero() {
    const __m256 z = _mm256_setzero_ps();
    return {{z, z, z, z}};
  }
  static HB_ALWAYS_INLINE Sums widen(const uint16_t* w) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 16));
    const __m256i odd = _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u));
    return {{_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)),
             _mm256_castsi256_ps(_mm256_and_si256(a, odd)), _mm256_castsi256_ps(_mm256_and_si256(b, odd))}};
  }
  static HB_ALWAYS_INLINE Sums widen(const uint8_t* w) {
    const __m256i a = e4m3_to_f16(load128(w)), b = e4m3_to_f16(load128(w + 16));
    return {{_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)),
             _mm256_cvtph_ps(_mm256_castsi256_si128(b)), _mm256_cvtph_ps(_mm256_extracti128_si256(b, 1))}};
  }
  static HB_ALWAYS_INLINE Sums widen(const float* w) {
    return {{_mm256_loadu_ps(w), _mm256_loadu_ps(w + 8), _mm256_loadu_ps(w + 16), _mm256_loadu_ps(w + 24)}};
  }
  static HB_ALWAYS_INLINE void multiply_add(const float* x, const Sums& w, Sums& sums) {
    for (int i = 0; i < 4; ++i) sums.v[i] = _mm256_fmadd_ps(_mm256_loadu_ps(x + 8 * i), w.v[i], sums.v[i]);
  }
  static HB_ALWAYS_INLINE void store(const Sums& sums, float* out) {
    for (int i = 0; i < 4; ++i) _mm256_storeu_ps(out + 8 * i, sums.v[i]);
  }
  // Lanes in order of k: 16, 8, then fold8.
  static HB_ALWAYS_INLINE float fold(const Sums& s) {
    return fold8(_mm256_add_ps(_mm256_add_ps(s.v[0], s.v[2]), _mm256_add_ps(s.v[1], s.v[3])));
  }
  static HB_ALWAYS_INLINE float fold_even_odd(const Sums& s) {
    return fold8(_mm256_add_ps(s.v[0], s.v[1]), _mm256_add_ps(s.v[2], s.v[3]));
  }
};

}  // namespace

std::span<const LinearKernel> linear_bf16_avx2() {
  static constexpr LinearKernel kKernels[] = {
      LinearPlain<Avx2, WeightFormat::kF32>::kernel<false>("linear_f32_f32_avx2", Isa::kAvx2),
      LinearPlain<Avx2, WeightFormat::kF32>::kernel<true>("linear_f32_a16_avx2", Isa::kAvx2),
      LinearPlain<Avx2, WeightFormat::kBF16>::kernel<false>("linear_bf16_f32_avx2", Isa::kAvx2),
      LinearPlain<Avx2, WeightFormat::kBF16>::kernel<true>("linear_bf16_a16_avx2", Isa::kAvx2),
      LinearPlain<Avx2, WeightFormat::kFP8>::kernel<false>("linear_fp8_f32_avx2", Isa::kAvx2),
      LinearPlain<Avx2, WeightFormat::kFP8>::kernel<true>("linear_fp8_a16_avx2", Isa::kAvx2),
  };
  return kKernels;
}

}  // namespace halfbyte::cpu
