// What is known of a model before its weights are read, and all that memory predictions need.
#pragma once

#include <cstddef>

#include "halfbyte/plan.h"
#include "kernels/api.h"
#include "model/config.h"

namespace halfbyte {

struct ModelFacts {
  ModelConfig config;
  PrecisionPlan plan;
  Isa isa = Isa::kRef;
  size_t rounded_row_bytes = 0;  // most that a row takes as the kernels of all linears that share it read it
  int64_t pre_scaled_width = 0;  // the widest input that is multiplied by a pre-scale first; 0: none
};

}  // namespace halfbyte
