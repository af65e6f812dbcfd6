// Weights rounded to few-bit integers in groups, as the token-inflation paper's baselines are (docs/numerics.md 1): a study
// format, kept as BF16 values and not packed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>

namespace halfbyte {

inline constexpr size_t kIntGroup = 128;

// Rounds a row of a weight to `bits`-bit integers (2 to 8) in groups of 128 along K, asymmetric: each group's range, widened to
// hold 0, is cut into 2^bits - 1 steps. Round half to even. A group of zeros stays.
inline void round_int_groups(std::span<float> row, int bits) {
  const auto levels = static_cast<float>((1 << bits) - 1);
  for (size_t begin = 0; begin < row.size(); begin += kIntGroup) {
    const auto group = row.subspan(begin, std::min(kIntGroup, row.size() - begin));
    float low = 0, high = 0;
    for (const float x : group) {
      low = std::min(low, x);
      high = std::max(high, x);
    }
    const float step = std::max((high - low) / levels, 1e-8f);
    const float zero = std::nearbyint(-low / step);
    for (float& x : group) x = (std::clamp(std::nearbyint(x / step) + zero, 0.0f, levels) - zero) * step;
  }
}

}  // namespace halfbyte
