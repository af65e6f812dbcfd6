// What lies behind Model, for the engine.
#pragma once

#include "halfbyte/model.h"
#include "kernels/registry.h"
#include "model/facts.h"
#include "model/rope.h"
#include "model/weights.h"

namespace halfbyte {

struct Model::Impl : ModelFacts {
  ModelSummary summary;
  ModelWeights weights;
  Rope rope;
};

}  // namespace halfbyte
