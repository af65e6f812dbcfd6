// Where each tensor's numbers come from, for `inspect`.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "io/model_source.h"
#include "model/load_plan.h"

namespace halfbyte::tools {

// What every tensor of the source is: of a linear's weight how it is stored and what the plan makes of it, of others
// whose part they are. By the tensor's name.
std::map<std::string, std::string> tensor_roles(const LoadPlan& plan);

// "NVFP4, E4M3 a 16-block, weight_scale_2 multiplies" -> how many linears; most first.
std::vector<std::pair<std::string, int>> stored_formats(const LoadPlan& plan);

// What the checkpoint says about the KV cache and what of it is there; "" if nothing.
std::string kv_cache_text(const ModelSource& source, const LoadPlan& plan);

// Doubtful things that only the small tensors show: constant input scales, linears with one input and several scales.
// Reads scalars, never a weight.
std::vector<std::string> doubts(const ModelSource& source, const LoadPlan& plan);

}  // namespace halfbyte::tools
