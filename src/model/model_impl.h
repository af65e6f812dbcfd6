// What lies behind Model, for the engine.
#pragma once

#include "halfbyte/model.h"
#include "kernels/registry.h"
#include "model/config.h"
#include "model/rope.h"
#include "model/weights.h"

namespace halfbyte {

struct Model::Impl {
  ModelConfig config;
  PrecisionPlan plan;
  ModelSummary summary;
  ModelWeights weights;
  Rope rope;
  Isa isa = Isa::kRef;
};

}  // namespace halfbyte
