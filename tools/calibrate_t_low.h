// halfbyte calibrate reset: the low temperature, chosen among a few by how often a validation task is answered rightly.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "eval/evaluate.h"
#include "halfbyte/temperature_policy.h"
#include "run.h"

namespace halfbyte::tools {

struct TLowRow {
  double t_low = 0;  // as it was asked for
  EvalSummary summary;
  Interval change;  // accuracy less that at the fixed temperature, paired by question
};

struct TLowGrid {
  float temperature = 0;  // the fixed one that the rows are compared with
  EvalSummary fixed;
  std::vector<TLowRow> rows;  // in the order asked
  size_t best = 0;            // the most accurate row; of equal ones the highest temperature
};

// Answers the questions at the model's own temperature and then under ReSET with `tau0` and each of `t_lows`, all on the
// same seeds; as many at once as `concurrent`. Progress goes to stderr. kCancelled when interrupted.
Result<TLowGrid> grid_t_low(Chat& chat, std::span<const Question> questions, int samples, int concurrent, double tau0,
                            std::span<const double> t_lows);

// A table for a person, and what it says about the best row.
std::string grid_text(const TLowGrid& grid);

}  // namespace halfbyte::tools
