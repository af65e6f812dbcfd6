// base/exp32.h on the lanes of a vector: the same operations in the same order, so the same bits. One copy for each
// instruction set V: exp32_avx2.h, exp32_avx512.h.
#pragma once

#include "kernels/cpu/fp4_layout.h"

namespace halfbyte::cpu {

template <class V>
HB_ALWAYS_INLINE typename V::Floats exp32_of(typename V::Floats x) {
  using Floats = typename V::Floats;
  const Floats shifter = V::set(12582912.0f);
  const Floats shifted = V::add(V::mul(x, V::set(1.44269504f)), shifter);
  const Floats n = V::sub(shifted, shifter);
  const Floats r = V::sub(V::sub(x, V::mul(n, V::set(0.693359375f))), V::mul(n, V::set(-2.12194440e-4f)));
  Floats p = V::set(1.9875691500e-4f);
  p = V::add(V::mul(p, r), V::set(1.3981999507e-3f));
  p = V::add(V::mul(p, r), V::set(8.3334519073e-3f));
  p = V::add(V::mul(p, r), V::set(4.1665795894e-2f));
  p = V::add(V::mul(p, r), V::set(1.6666665459e-1f));
  p = V::add(V::mul(p, r), V::set(5.0000001201e-1f));
  const Floats y = V::add(V::add(V::mul(p, V::mul(r, r)), r), V::set(1.0f));
  return V::times_power(y, shifted, x);
}

}  // namespace halfbyte::cpu
