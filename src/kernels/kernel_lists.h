// What each translation unit contributes to the registry; private to src/kernels.
#pragma once

#include <span>

#include "kernels/api.h"

namespace halfbyte {

namespace ref {
std::span<const LinearKernel> linear_nvfp4();
std::span<const LinearKernel> linear_mxfp4();
std::span<const LinearKernel> linear_bf16();
std::span<const LinearKernel> linear_tiles();
const VectorKernels& vector_kernels();
}  // namespace ref

#if defined(HALFBYTE_X86_KERNELS)
namespace cpu {
std::span<const LinearKernel> linear_nvfp4_avx2();
std::span<const LinearKernel> linear_mxfp4_avx2();
std::span<const LinearKernel> linear_bf16_avx2();
std::span<const LinearKernel> linear_nvfp4_avxvnni();
std::span<const LinearKernel> linear_mxfp4_avxvnni();
std::span<const LinearKernel> linear_nvfp4_avx512();
std::span<const LinearKernel> linear_mxfp4_avx512();
std::span<const LinearKernel> linear_bf16_avx512();
std::span<const LinearKernel> linear_nvfp4_amx();
std::span<const LinearKernel> linear_mxfp4_amx();
std::span<const LinearKernel> linear_bf16_amx();
const VectorKernels& vector_kernels_avx2();
void silu_mul_avx512(const float* gate, const float* up, int64_t n, float* out);
}  // namespace cpu
#endif

}  // namespace halfbyte
