// Models of a known shape with random weights and no file: for speed measurements and tests.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "io/model_source.h"

namespace halfbyte {

// "smollm2-135m", "qwen3-0.6b", "qwen2.5-1.5b", "qwen3-1.7b", "qwen3-8b", "qwen3-14b", "qwen3-32b", "llama3.1-8b", and
// "tiny" for tests.
std::vector<std::string> synthetic_shape_names();

// A source whose tensors are made on reading: the same values for the same shape everywhere, scaled so that activations
// stay of order one. kInvalidArgument lists the names.
Result<ModelSource> synthetic_source(const std::string& shape);
// The same for any configuration of a supported architecture (io/architectures.h).
ModelSource synthetic_source(const HfConfig& config, const std::string& name);

}  // namespace halfbyte
