// The part of cuda_api.h that the engine's CUDA files use among themselves.
#pragma once

#include "engine/cuda_api.h"
#include "kernels/cuda/ops.h"

namespace halfbyte {

// Linears that are made from now on take the kernels of the table in the user's cache, if there is one for this device, driver
// and build; else those of the rule. Results are the same.
void use_measured_linears(const cuda::DeviceInfo& device);

CudaPlace place_of(const cuda::DeviceInfo& device);

}  // namespace halfbyte
