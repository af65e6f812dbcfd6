// Mathematics with every rounding fixed (docs/numerics.md section 4): the same bits from numpy, C++, SIMD and a GPU.
//
// Only FP32 +, -, * and conversions; never fused. The build compiles everything with -ffp-contract=off, and code that
// includes this header must keep it so.
#pragma once

#include <array>
#include <cstddef>

#include "base/exp32.h"

namespace halfbyte {

// Folds N partial sums, N a power of two, by adding lane i and lane i + half until one is left: N/2, ..., 2, 1.
template <class T, size_t N>
constexpr T fold_lanes(std::array<T, N> lanes) {
  static_assert(N > 0 && (N & (N - 1)) == 0, "the number of lanes must be a power of two");
  for (size_t half = N / 2; half > 0; half /= 2) {
    for (size_t i = 0; i < half; ++i) lanes[i] = lanes[i] + lanes[i + half];
  }
  return lanes[0];
}

}  // namespace halfbyte
