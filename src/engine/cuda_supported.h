// What the CUDA kernels take of a model. Plain C++, in every build, so that what is refused can be tested without CUDA.
#pragma once

#include "base/result.h"
#include "halfbyte/plan.h"
#include "model/weights.h"

namespace halfbyte {

// kUnsupported for a cache that the device's kernels do not have.
Status check_cuda_kv(KvKind kv);

// The formats of one linear, called `name` in the message, and of the cache: all that is not there in one line.
Status check_cuda_formats(const LinearPlan& plan, KvKind kv, const std::string& name);

// Every linear of a model in its normal form (kernels "ref"), and its cache: formats, factors of AWQ, and linears that share an
// input, which must round it in one way. The first that cannot run is named with what was found.
Status check_cuda_model(const ModelWeights& weights, KvKind kv);

}  // namespace halfbyte
