// Intervals of a mean by resampling questions.
#pragma once

#include <cstdint>
#include <span>

namespace halfbyte {

struct Interval {
  double mean = 0, low = 0, high = 0;
};

// 95% interval of the mean of `values` (one a question, the mean over its samples) from `draws` resamplings of the
// questions; percentiles as numpy's default. The same seed gives the same interval everywhere. Empty: zeros.
Interval bootstrap_mean(std::span<const double> values, int draws = 10'000, uint64_t seed = 0);

// The same for the ratio of two means over the same questions, resampled together. A denominator of 0: zeros.
Interval bootstrap_ratio(std::span<const double> numerators, std::span<const double> denominators, int draws = 10'000,
                         uint64_t seed = 0);

// Questions of one task: numerators and denominators of a ratio, as bootstrap_ratio takes them.
struct RatioTask {
  std::span<const double> numerators, denominators;
};
// The plain mean of the tasks' ratios. Each task's questions are resampled among themselves, tasks independently. Tasks
// whose denominator is 0 have no ratio and do not count.
Interval bootstrap_mean_of_ratios(std::span<const RatioTask> tasks, int draws = 10'000, uint64_t seed = 0);

}  // namespace halfbyte
