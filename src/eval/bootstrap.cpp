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

struct Ratios {
  double all = 0;             // of all questions
  std::vector<double> drawn;  // of each resampling; empty where there is no ratio
};
Ratios resampled_ratios(std::span<const double> numerators, std::span<const double> denominators, int draws,
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
  return {above / below, resample(numerators.size(), draws, seed, add, end)};
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
  const Ratios ratios = resampled_ratios(numerators, denominators, draws, seed);
  return ratios.drawn.empty() ? Interval{} : interval_of(ratios.all, ratios.drawn);
}

Interval bootstrap_mean_of_ratios(std::span<const RatioTask> tasks, int draws, uint64_t seed) {
  std::vector<double> sums(static_cast<size_t>(draws < 1 ? 0 : draws));
  double mean = 0, count = 0;
  for (size_t t = 0; t < tasks.size(); ++t) {
    const Ratios ratios = resampled_ratios(tasks[t].numerators, tasks[t].denominators, draws, seed + t);
    if (ratios.drawn.empty()) continue;
    ++count;
    mean += ratios.all;
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += ratios.drawn[i];
  }
  if (count == 0) return {};
  for (double& sum : sums) sum /= count;
  return interval_of(mean / count, sums);
}

}  // namespace halfbyte
