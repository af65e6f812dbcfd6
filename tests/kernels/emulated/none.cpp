#include "kernels.h"

#include "kernels/registry.h"

namespace halfbyte::testing {

const std::vector<LinearKernel>& emulated_linear_kernels() {
  static const std::vector<LinearKernel> kNone;
  return kNone;
}

const VectorKernels& emulated_vector_kernels(Isa) {
  return vector_kernels(Isa::kRef);
}

}  // namespace halfbyte::testing
