// The fold of partial sums that the contract asks for (docs/numerics.md 3.3, 5 and 6).
#pragma once

namespace halfbyte::ref {

// Lane i += lane i + half for half = kLanes / 2, ..., 2, 1. kLanes is a power of two.
template <int kLanes>
float fold(float (&lanes)[kLanes]) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

}  // namespace halfbyte::ref
