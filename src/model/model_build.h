// Facts about a model that are known before its weights are read: for loading, `inspect` and memory predictions.
#pragma once

#include "halfbyte/model.h"
#include "model/load_plan.h"

namespace halfbyte {

// All but the time.
ModelSummary summarize(const ModelSource& source, const LoadPlan& plan);
uint64_t kv_bytes_per_token(const ModelConfig& config, const PrecisionPlan& plan);

}  // namespace halfbyte
