// The natural logarithm of entropies and log-probabilities (docs/numerics.md 4). Libraries differ in the last bit of
// log; an entropy decides a temperature, so its bits must be the same everywhere. Algorithm: fdlibm's e_log.c.
#pragma once

#include <bit>
#include <cstdint>

namespace halfbyte {

// ln z for a normal z > 0, below 1 ulp. FP64 operations in a fixed order; needs -ffp-contract=off (the project's
// setting). Always inlined: files built for different instruction sets must not share one copy.
[[gnu::always_inline]] constexpr double log64(double z) {
  // z = 2^k * m with m in [sqrt(1/2), sqrt(2)).
  const auto bits = std::bit_cast<uint64_t>(z);
  int exponent = static_cast<int>(bits >> 52) - 1022;
  double m = std::bit_cast<double>((bits & 0x000FFFFFFFFFFFFFu) | 0x3FE0000000000000u);  // [1/2, 1)
  if (m < 0.7071067811865476) {
    m *= 2.0;
    exponent -= 1;
  }
  const auto k = static_cast<double>(exponent);
  const double f = m - 1.0;
  const double s = f / (2.0 + f);
  const double w = s * s;
  double r = 1.479819860511658591e-01;
  r = r * w + 1.531383769920937332e-01;
  r = r * w + 1.818357216161805012e-01;
  r = r * w + 2.222219843214978396e-01;
  r = r * w + 2.857142874366239149e-01;
  r = r * w + 3.999999999940941908e-01;
  r = r * w + 6.666666666666735130e-01;
  r = r * w;
  const double h = (0.5 * f) * f;
  return k * 6.93147180369123816490e-01 - ((h - (s * (h + r) + k * 1.90821492927058770002e-10)) - f);
}

}  // namespace halfbyte
