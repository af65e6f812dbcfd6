// ReSET and its ablations for one request: a few sums, and the last `window` entropies (docs/reset.md; the policy as its
// published code behaves). Sums are float64, oldest entropy first, so that the numpy definition gives the same bits.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "base/temperature_sums.h"
#include "halfbyte/temperature_policy.h"

namespace halfbyte {

inline constexpr int kLongestWindow = 4096;

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

  // For a machine that goes on from here by itself: the sums, and the ring, of which `held` entropies mean something.
  const TemperatureSums& sums() const { return sums_; }
  const std::vector<double>& ring() const { return ring_; }

 private:
  TemperatureSums sums_;
  std::vector<double> ring_;  // [window]
};

}  // namespace halfbyte
