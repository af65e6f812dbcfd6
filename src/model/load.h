// Carries out a LoadPlan: reads, rounds and packs every weight, in parallel, a row block at a time in FP32.
#pragma once

#include "base/thread_pool.h"
#include "halfbyte/model.h"
#include "model/load_plan.h"
#include "model/weights.h"

namespace halfbyte {

// kResourceExhausted, with both numbers, when `needed` bytes of memory for `what` are not there.
Status check_memory(uint64_t needed, const std::string& what, const std::string& advice);

Result<ModelWeights> load_weights(const ModelSource& source, const LoadPlan& plan, const LoadOptions& options,
                                  ThreadPool& pool);

}  // namespace halfbyte
