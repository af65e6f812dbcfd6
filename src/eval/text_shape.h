// How a reasoning is made: its steps, and how much of it says again what was said.
#pragma once

#include <cstdint>
#include <span>

#include "halfbyte/temperature_policy.h"

namespace halfbyte {

struct TextShape {
  int64_t steps = 0;    // separated by blank lines
  double repeated = 0;  // share of the 4-grams of tokens that stood in an earlier step
  double alike = 0;     // mean cosine of neighbouring steps as bags of tokens; 0 with one step
};

// `classes`: where steps end (StepClasses).
TextShape text_shape(std::span<const int32_t> tokens, const StepClasses& classes);

}  // namespace halfbyte
