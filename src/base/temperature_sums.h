// The state of a temperature policy (decode/reset.h) but for its ring of entropies, in a form that host and device share.
// Single FP64 operations in one order, so both get the same bits (the project is compiled without contraction).
#pragma once

#include <cstdint>

#include "base/temperature_step.h"

namespace halfbyte {

struct TemperatureSums {
  double step_sum = 0, all_sum = 0;
  int64_t step_count = 0, all_count = 0;
  double tau0 = 0;
  float t_low = 0, t_high = 0;
  int32_t window = 1;          // of the ring
  int32_t held = 0;            // entropies in the ring
  int32_t oldest = 0;          // its place once the ring is full
  bool only_window = false;    // H_step is the window's mean always,
  bool only_step = false;      // or the step's
  bool by_token = false;       // as in TemperatureStep
  bool low_confident = false;  // as in TemperatureStep
  bool include_current = false;
  bool boundary = false;       // the next token begins a step
  bool after_newline = false;  // the last token was one newline

  bool operator==(const TemperatureSums&) const = default;

  // What the next token's temperature depends on beside its entropy. ring: [window].
  constexpr TemperatureStep upcoming(const double* ring) const {
    TemperatureStep out;
    const double sum = boundary ? 0 : step_sum;  // a step begins: what the last one had does not count
    int64_t count = boundary ? 0 : step_count;
    if (only_window || (!only_step && count < window)) {
      // Of the last `window` entropies, H_t being the youngest of them where it counts.
      const int32_t skip = include_current && held == window ? 1 : 0;
      for (int32_t i = skip; i < held; ++i) out.sum += ring[(oldest + i) % held];
      count = held - skip;
    } else {
      out.sum = sum;
    }
    out.counts_current = include_current || count == 0;
    out.count = static_cast<double>(count + (out.counts_current ? 1 : 0));
    out.has_running_mean = all_count > 0;
    if (out.has_running_mean) out.running_mean = all_sum / static_cast<double>(all_count);
    out.tau0 = tau0;
    out.t_low = t_low;
    out.t_high = t_high;
    out.by_token = by_token;
    out.low_confident = low_confident;
    return out;
  }

  // Takes the entropy of the token that was decided upon; true when a step begins with that token.
  constexpr bool take(double* ring, double entropy) {
    const bool fresh = boundary;
    if (fresh) {
      step_sum = 0;
      step_count = 0;
    }
    boundary = false;
    step_sum += entropy;
    ++step_count;
    all_sum += entropy;
    ++all_count;
    if (held < window) {
      ring[held++] = entropy;
      return fresh;
    }
    ring[oldest] = entropy;
    oldest = (oldest + 1) % window;
    return fresh;
  }

  // The class of the token that was drawn (StepClasses).
  constexpr void accept(uint8_t step_class) {
    boundary = step_class == 2 || (step_class == 1 && after_newline);
    after_newline = step_class == 1;
  }
};

}  // namespace halfbyte
