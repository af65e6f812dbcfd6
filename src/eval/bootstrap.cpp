#include "eval/bootstrap.h"

#include <numeric>
#include <utility>
#include <vector>

#include "base/percentile.h"
#include "base/rng.h"

namespace halfbyte {
namespace {

// A value for each of `draws` resamplings of `n` questions. add(question) is called for each drawn one, then end().
template <class Add, class End>
std::vector<double> resample(size_t n, int draws, uint64_t seed, Add&& add, End&& end) {
  std::vector<double> values(static_cast<size_t>(draws));
  uint64_t position = 0;
  for (double& value : values) {
    for (size_t i = 0; i < n; i += 2) {  // two choices of 32 bits a draw
      const uint64_t bits = philox_draw(seed, 0, position++, /*stream=*/2);
      add(static_cast<size_t>(((bits & 0xFFFFFFFFu) * n) >> 32));
      if (i + 1 < n) add(static_cast<size_t>(((bits >> 32) * n) >> 32));
    }
    value = end();
  }
  return values;
}

Interval interval_of(double mean, const std::vector<double>& values) {
  return {mean, percentile(values, .025), percentile(values, .975)};
}

}  // namespace

Interval bootstrap_mean(std::span<const double> values, int draws, uint64_t seed) {
  if (values.empty() || draws < 1) return {};
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  const auto add = [&](size_t i) { sum += values[i]; };
  const auto end = [&] { return std::exchange(sum, 0) / n; };
  const std::vector<double> means = resample(values.size(), draws, seed, add, end);
  return interval_of(std::accumulate(values.begin(), values.end(), 0.0) / n, means);
}

Interval bootstrap_ratio(std::span<const double> numerators, std::span<const double> denominators, int draws,
                         uint64_t seed) {
  const double above = std::accumulate(numerators.begin(), numerators.end(), 0.0);
  const double below = std::accumulate(denominators.begin(), denominators.end(), 0.0);
  if (numerators.empty() || draws < 1 || below == 0) return {};
  double top = 0, bottom = 0;
  const auto add = [&](size_t i) {
    top += numerators[i];
    bottom += denominators[i];
  };
  // A draw of questions that all have 0 says nothing: the ratio of all takes its place.
  const auto end = [&] {
    const double ratio = bottom != 0 ? top / bottom : above / below;
    top = bottom = 0;
    return ratio;
  };
  const std::vector<double> ratios = resample(numerators.size(), draws, seed, add, end);
  return interval_of(above / below, ratios);
}

}  // namespace halfbyte
