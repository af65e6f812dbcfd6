// ReSET and its ablations for one request: a few sums, and the last `window` entropies (docs/reset.md; the policy as its
// published code behaves). Sums are float64, oldest entropy first, so that the numpy definition gives the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/temperature_step.h"
#include "halfbyte/temperature_policy.h"

namespace halfbyte {

// invalid_argument that names the field, its value and its range.
Status check_policy(const TemperaturePolicy& policy);

// Allocates when it is made, never later. Copies are independent: a request continued from a saved prefix keeps its state
// by keeping this object.
class TemperatureState {
 public:
  explicit TemperatureState(const TemperaturePolicy& policy);

  // The temperature for the token about to be drawn. `entropy`: H_t. Once a token.
  TemperatureChoice next(double entropy);
  // What next() will choose by, for whoever draws before the entropy is known here; next() must follow with that entropy.
  TemperatureStep upcoming() const;
  // The class of the token that was drawn (StepClasses). Prompt tokens are never told.
  void accept(uint8_t step_class);

 private:
  int64_t window_sum(double& sum) const;
  void remember(double entropy);

  TemperaturePolicy policy_;
  std::vector<double> recent_;  // ring, capacity `window`
  size_t oldest_ = 0;           // its place once the ring is full
  double step_sum_ = 0, all_sum_ = 0;
  int64_t step_count_ = 0, all_count_ = 0;
  bool boundary_ = false;       // the next token begins a step
  bool after_newline_ = false;  // the last token was one newline
};

}  // namespace halfbyte
