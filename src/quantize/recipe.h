// How a checkpoint's linears are rounded. A recipe is a function; the exporter knows nothing else about it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "tensor/quant_linear.h"
#include "tensor/quantize_tensor.h"

namespace halfbyte {

// One linear's weight to NVFP4. group_amax is the largest magnitude over the linears that share a tensor scale (q, k,
// v; gate, up), so that all of them come out with the same one. Must be deterministic whatever the pool's size.
using RoundWeight = std::function<Result<QuantLinear>(const WeightSource& weight, float group_amax, ThreadPool& pool)>;

struct Recipe {
  std::string name;
  std::string description;  // one line for help
  RoundWeight round;        // none: linears stay BF16
};

// "bf16": every tensor in BF16. "rtn": round to nearest (docs/numerics.md 2).
std::vector<Recipe> recipes();
// kInvalidArgument with the list of names.
Result<Recipe> recipe_named(std::string_view name);

}  // namespace halfbyte
