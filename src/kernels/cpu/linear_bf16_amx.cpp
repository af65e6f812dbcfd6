#include "kernels/cpu/linear_tiles_amx.h"
#include "kernels/kernel_lists.h"

namespace halfbyte::cpu {

std::span<const LinearKernel> linear_bf16_amx() {
  static constexpr LinearKernel kKernels[] = {
      amx::tile_kernel<amx::Bf16Weights>("linear_bf16_a16t_amx", WeightFormat::kBF16, ActivationMode::kA16,
                                         &plain_packed_bytes<WeightFormat::kBF16>, &pack_plain<WeightFormat::kBF16>,
                                         &quantize_tile_bf16_a16),
  };
  return kKernels;
}

}  // namespace halfbyte::cpu
