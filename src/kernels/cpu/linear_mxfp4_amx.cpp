#include "kernels/cpu/fp4_pack.h"
#include "kernels/cpu/linear_tiles_amx.h"
#include "kernels/kernel_lists.h"

namespace halfbyte::cpu {

std::span<const LinearKernel> linear_mxfp4_amx() {
  using Weights = amx::Fp4Weights<Mxfp4Layout>;
  static constexpr LinearKernel kKernels[] = {
      amx::tile_kernel<Weights>("linear_mxfp4_a16t_amx", WeightFormat::kMXFP4, ActivationMode::kA16,
                                &mxfp4_packed_bytes, &pack_mxfp4, &quantize_tile_fp4_a16),
      amx::tile_kernel<Weights>("linear_mxfp4_a8t_amx", WeightFormat::kMXFP4, ActivationMode::kA8, &mxfp4_packed_bytes,
                                &pack_mxfp4, &quantize_tile_mxfp4_a8),
      amx::tile_kernel<Weights>("linear_mxfp4_a4t_amx", WeightFormat::kMXFP4, ActivationMode::kA4, &mxfp4_packed_bytes,
                                &pack_mxfp4, &quantize_tile_mxfp4_a4),
  };
  return kKernels;
}

}  // namespace halfbyte::cpu
