#include "kernels/cpu/fp4_pack.h"
#include "kernels/cpu/linear_fp4_avxvnni.h"
#include "kernels/cpu/quantize_rows.h"
#include "kernels/kernel_lists.h"

namespace halfbyte::cpu {

std::span<const LinearKernel> linear_nvfp4_avxvnni() {
  static constexpr LinearKernel kKernels[] = {
      {"linear_nvfp4_a16i16_avxvnni", Isa::kAvxVnni, WeightFormat::kNVFP4, ActivationMode::kA16, kTileRows,
       avx2::kMaxTokens, &nvfp4_packed_bytes, &pack_nvfp4, &nvfp4_a16_bytes, &quantize_nvfp4_a16_avx2,
       &avxvnni::LinearFp4<Nvfp4Layout, 2>::run},
      {"linear_nvfp4_a8_avxvnni", Isa::kAvxVnni, WeightFormat::kNVFP4, ActivationMode::kA8, kTileRows, avx2::kMaxTokens,
       &nvfp4_packed_bytes, &pack_nvfp4, &nvfp4_a8_bytes, &quantize_nvfp4_a8_avx2,
       &avxvnni::LinearFp4<Nvfp4Layout, 3>::run},
      {"linear_nvfp4_a4_avxvnni", Isa::kAvxVnni, WeightFormat::kNVFP4, ActivationMode::kA4, kTileRows, avx2::kMaxTokens,
       &nvfp4_packed_bytes, &pack_nvfp4, &nvfp4_a4_bytes, &quantize_nvfp4_a4_avx2,
       &avxvnni::LinearFp4<Nvfp4Layout, 1>::run},
  };
  return kKernels;
}

}  // namespace halfbyte::cpu
