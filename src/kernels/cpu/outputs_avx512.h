// The end of every AVX-512 and AMX linear.
#pragma once

#include <immintrin.h>

#include "kernels/cpu/fp4_layout.h"

namespace halfbyte::cpu::avx512 {

// `out` + bias -> y, of kTileRows outputs or the `left` that there are. bias: of the first, or null.
HB_ALWAYS_INLINE void store_outputs(__m512 out, const float* bias, int64_t left, float* y) {
  const auto mask = static_cast<__mmask16>(left >= kTileRows ? 0xFFFF : (1 << left) - 1);
  if (bias != nullptr) out = _mm512_add_ps(out, _mm512_maskz_loadu_ps(mask, bias));
  _mm512_mask_storeu_ps(y, mask, out);
}

}  // namespace halfbyte::cpu::avx512
