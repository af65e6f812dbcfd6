// For tests of the engine on a CUDA device: skipped, with the reason, where none can run the kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/cuda_api.h"

namespace halfbyte::testing {

// HALFBYTE_KERNELS=portable runs the tests with those kernels.
inline Status usable_cuda() {
  const char* name = std::getenv("HALFBYTE_KERNELS");
  HB_TRY(force_cuda_kernels(name != nullptr ? name : ""));
  return cuda_usable();
}

}  // namespace halfbyte::testing

#define HB_NEED_CUDA()                                                                    \
  if (const ::halfbyte::Status usable = ::halfbyte::testing::usable_cuda(); !usable.ok()) \
  GTEST_SKIP() << "no CUDA device: " << usable.message()
