#include "kernels/cpu/fp4_pack.h"
#include "kernels/cpu/linear_decode_amx.h"
#include "kernels/cpu/linear_tiles_amx.h"
#include "kernels/kernel_lists.h"

namespace halfbyte::cpu {

std::span<const LinearKernel> linear_nvfp4_amx() {
  using Weights = amx::Fp4Weights<Nvfp4Layout>;
  static constexpr LinearKernel kKernels[] = {
      amx::tile_kernel<Weights>("linear_nvfp4_a16t_amx", WeightFormat::kNVFP4, ActivationMode::kA16,
                                &nvfp4_packed_bytes, &pack_nvfp4, &quantize_tile_fp4_a16),
      amx::tile_kernel<Weights>("linear_nvfp4_a8t_amx", WeightFormat::kNVFP4, ActivationMode::kA8, &nvfp4_packed_bytes,
                                &pack_nvfp4, &quantize_tile_nvfp4_a8),
      amx::tile_kernel<Weights>("linear_nvfp4_a4t_amx", WeightFormat::kNVFP4, ActivationMode::kA4, &nvfp4_packed_bytes,
                                &pack_nvfp4, &quantize_tile_nvfp4_a4),
      amx::decode_kernel<Nvfp4Layout, 2>("linear_nvfp4_a16i16_amx", WeightFormat::kNVFP4, ActivationMode::kA16,
                                         &nvfp4_packed_bytes, &pack_nvfp4, &decode_nvfp4_a16_bytes,
                                         &quantize_decode_nvfp4_a16),
      amx::decode_kernel<Nvfp4Layout, 1>("linear_nvfp4_a4_amx", WeightFormat::kNVFP4, ActivationMode::kA4,
                                         &nvfp4_packed_bytes, &pack_nvfp4, &decode_nvfp4_a4_bytes,
                                         &quantize_decode_nvfp4_a4),
  };
  return kKernels;
}

}  // namespace halfbyte::cpu
