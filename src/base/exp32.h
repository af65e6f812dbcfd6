// The exponential that softmax, SiLU and the sampler share (docs/numerics.md 4): the same bits from numpy, C++, SIMD
// and CUDA, because it is made of single FP32 operations in a fixed order. Polynomial: Cephes expf.
#pragma once

#include <bit>
#include <cstdint>

namespace halfbyte {

// e^x for x <= 0; 0 below -87. NaN stays NaN. Branch-free, so compilers turn loops over it into SIMD.
// Always inlined: files built for different instruction sets must not share one copy. Needs -ffp-contract=off (set for
// the whole project).
[[gnu::always_inline]] constexpr float exp32(float x) {
  // Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves n in the low bits.
  const float shifted = x * 1.44269504f + 12582912.0f;
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const float y = p * (r * r) + r + 1.0f;
  const float power = std::bit_cast<float>((std::bit_cast<uint32_t>(shifted) + 127u) << 23);
  return x < -87.0f ? 0.0f : y * power;
}

}  // namespace halfbyte
