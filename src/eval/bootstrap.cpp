#include "eval/bootstrap.h"

#include <numeric>
#include <vector>

#include "base/percentile.h"
#include "base/rng.h"

namespace halfbyte {
Interval bootstrap_mean(std::span<const double> values, int draws, uint64_t seed) {
  if (values.empty() || draws < 1) return {};
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  std::vector<double> means(static_cast<size_t>(draws));
  uint64_t position = 0;
  for (double& m : means) {
    double sum = 0;
    for (size_t i = 0; i < values.size(); i += 2) {  // two choices of 32 bits a draw
      const uint64_t bits = philox_draw(seed, 0, position++, /*stream=*/2);
      sum += values[static_cast<size_t>(((bits & 0xFFFFFFFFu) * values.size()) >> 32)];
      if (i + 1 < values.size()) sum += values[static_cast<size_t>(((bits >> 32) * values.size()) >> 32)];
    }
    m = sum / n;
  }
  return {mean, percentile(means, .025), percentile(means, .975)};
}

}  // namespace halfbyte
