// Percentiles of measured samples.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace halfbyte {

// Between samples, as numpy's default; share is in [0, 1], values not empty.
inline double percentile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double at = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (values[high] - values[low]) * (at - static_cast<double>(low));
}

inline double median(std::vector<double> values) {
  return percentile(std::move(values), 0.5);
}

}  // namespace halfbyte
