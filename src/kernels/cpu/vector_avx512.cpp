// SiLU on AVX-512, bit-equal to ref/vector.cpp.
#include <immintrin.h>

#include "kernels/cpu/exp32_avx512.h"
#include "kernels/kernel_lists.h"

namespace halfbyte::cpu {
namespace {

HB_ALWAYS_INLINE __m512 silu_times(__m512 x, __m512 up) {
  const __mmask16 positive = _mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ);
  const __m512 e = exp32(_mm512_mask_xor_ps(x, positive, x, _mm512_set1_ps(-0.0f)));
  const __m512 top = _mm512_mask_blend_ps(positive, _mm512_mul_ps(x, e), x);
  return _mm512_mul_ps(_mm512_div_ps(top, _mm512_add_ps(_mm512_set1_ps(1.0f), e)), up);
}

}  // namespace

void silu_mul_avx512(const float* gate, const float* up, int64_t n, float* out) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16)
    _mm512_storeu_ps(out + i, silu_times(_mm512_loadu_ps(gate + i), _mm512_loadu_ps(up + i)));
  if (i == n) return;
  const auto some = static_cast<__mmask16>((1u << (n - i)) - 1u);
  _mm512_mask_storeu_ps(out + i, some,
                        silu_times(_mm512_maskz_loadu_ps(some, gate + i), _mm512_maskz_loadu_ps(some, up + i)));
}

}  // namespace halfbyte::cpu
