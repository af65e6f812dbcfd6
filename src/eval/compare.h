// Two results files of the same questions side by side: what one plan costs against another, paired question by question.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "eval/bootstrap.h"
#include "eval/results.h"

namespace halfbyte {

// Means over the shared samples of one file.
struct Side {
  double accuracy = 0;
  double reasoning_tokens = 0, tokens = 0;
  double steps = 0, repeated = 0, alike = 0;  // eval/text_shape.h
  double truncated = 0, looped = 0;
};

// Samples whose reasoning in the reference was about as long.
struct LengthBin {
  int64_t from = 0, to = 0;  // reasoning tokens in the reference, both included
  int64_t samples = 0;
  double reference = 0, other = 0;  // accuracy
};

struct Comparison {
  int64_t questions = 0, samples = 0;  // in both files; samples in all
  Side reference, other;
  Interval change;                     // of the accuracy
  std::optional<Interval> ctir;        // ratio of the mean reasoning tokens (chain-of-thought token inflation, arXiv
                                       // 2606.25519); none where the reference has no reasoning
  std::optional<double> paired_ratio;  // mean over samples of the ratio of their reasoning tokens; likewise
  Interval tokens_saved;               // 1 - ratio of the mean tokens, reasoning and answer (ResServe)
  std::vector<LengthBin> by_length;    // quarters of the samples
};

// Intervals: 95%, from `draws` resamplings of the questions. invalid_argument when the files share no sample.
Result<Comparison> compare_results(std::span<const SampleResult> reference, std::span<const SampleResult> other,
                                   int draws = 10'000);

// How long a question takes against the reference: the mean tokens over the rates that both are generated at, tokens a second.
// None where a rate is not known (0).
std::optional<double> serving_penalty(const Comparison& comparison, double reference_rate, double other_rate);

// Two results files of one task.
struct TaskFiles {
  std::span<const SampleResult> reference, other;
};
// CTIR over several tasks: the plain mean of each one's (arXiv 2606.25519), of those that have one; 0 where none has. Fails as
// compare_results.
Result<Interval> mean_ctir(std::span<const TaskFiles> tasks, int draws = 10'000);

}  // namespace halfbyte
