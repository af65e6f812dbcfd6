// The runner of a pass that is there already, as a measurement makes one from random weights.
#pragma once

#include <memory>

#include "engine/cuda_pass.h"
#include "engine/runner.h"

namespace halfbyte {

std::unique_ptr<Runner> cuda_runner_of(std::shared_ptr<CudaPass> pass, const RunnerLimits& limits);

}  // namespace halfbyte
