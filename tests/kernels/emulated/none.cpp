#include "kernels.h"

namespace halfbyte::testing {

const std::vector<LinearKernel>& emulated_linear_kernels() {
  static const std::vector<LinearKernel> kNone;
  return kNone;
}

}  // namespace halfbyte::testing
