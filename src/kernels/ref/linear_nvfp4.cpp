#include "kernels/kernel_lists.h"
#include "kernels/ref/linear_fp4.h"

namespace halfbyte::ref {

std::span<const LinearKernel> linear_nvfp4() {
  static constexpr LinearKernel kKernels[] = {
      LinearFp4<ModeF32, Nvfp4Weights>::kernel("linear_nvfp4_f32_ref"),
      LinearFp4<ModeA16, Nvfp4Weights>::kernel("linear_nvfp4_a16_ref"),
      LinearFp4<ModeA16I16, Nvfp4Weights>::kernel("linear_nvfp4_a16i16_ref"),
      LinearFp4<ModeA8, Nvfp4Weights>::kernel("linear_nvfp4_a8_ref"),
      LinearFp4<ModeA4, Nvfp4Weights>::kernel("linear_nvfp4_a4_ref"),
  };
  return kKernels;
}

}  // namespace halfbyte::ref
