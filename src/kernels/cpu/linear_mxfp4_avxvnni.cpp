#include "kernels/cpu/fp4_pack.h"
#include "kernels/cpu/linear_fp4_avxvnni.h"
#include "kernels/cpu/quantize_rows.h"
#include "kernels/kernel_lists.h"

namespace halfbyte::cpu {

std::span<const LinearKernel> linear_mxfp4_avxvnni() {
  static constexpr LinearKernel kKernels[] = {
      {"linear_mxfp4_a16i16_avxvnni", Isa::kAvxVnni, WeightFormat::kMXFP4, ActivationMode::kA16, kTileRows,
       avx2::kMaxTokens, &mxfp4_packed_bytes, &pack_mxfp4, &mxfp4_a16_bytes, &quantize_mxfp4_a16_avx2,
       &avxvnni::LinearFp4<Mxfp4Layout, 2>::run},
      {"linear_mxfp4_a8_avxvnni", Isa::kAvxVnni, WeightFormat::kMXFP4, ActivationMode::kA8, kTileRows, avx2::kMaxTokens,
       &mxfp4_packed_bytes, &pack_mxfp4, &mxfp4_a8_bytes, &quantize_mxfp4_a8_avx2,
       &avxvnni::LinearFp4<Mxfp4Layout, 3>::run},
      {"linear_mxfp4_a4_avxvnni", Isa::kAvxVnni, WeightFormat::kMXFP4, ActivationMode::kA4, kTileRows, avx2::kMaxTokens,
       &mxfp4_packed_bytes, &pack_mxfp4, &mxfp4_a4_bytes, &quantize_mxfp4_a4_avx2,
       &avxvnni::LinearFp4<Mxfp4Layout, 1>::run},
  };
  return kKernels;
}

}  // namespace halfbyte::cpu
