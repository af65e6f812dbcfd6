// halfbyte bench --device cuda: a decode loop on the device alone, and prompts.
#pragma once

#include <string>

#include "base/result.h"
#include "engine/cuda_api.h"

namespace halfbyte::tools {

// A table, or one JSON object.
std::string cuda_decode_text(const CudaDecodeOptions& options, const CudaDecodeReport& report, bool json);

}  // namespace halfbyte::tools
