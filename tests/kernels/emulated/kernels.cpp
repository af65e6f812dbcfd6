#include "kernels.h"

#include "kernels/cpu/attention.h"
#include "kernels/kernel_lists.h"
#include "kernels/registry.h"

namespace halfbyte::testing {

const std::vector<LinearKernel>& emulated_linear_kernels() {
  static const std::vector<LinearKernel> kAll = [] {
    std::vector<LinearKernel> all;
    for (const auto list :
         {cpu_emulated::linear_nvfp4_avxvnni(), cpu_emulated::linear_mxfp4_avxvnni(),
          cpu_emulated::linear_nvfp4_avx512(), cpu_emulated::linear_mxfp4_avx512(), cpu_emulated::linear_bf16_avx512(),
          cpu_emulated::linear_nvfp4_amx(), cpu_emulated::linear_mxfp4_amx(), cpu_emulated::linear_bf16_amx()}) {
      all.insert(all.end(), list.begin(), list.end());
    }
    return all;
  }();
  return kAll;
}

const VectorKernels& emulated_vector_kernels(Isa isa) {
  static const VectorKernels kAvx512 = [] {
    VectorKernels k = vector_kernels(Isa::kAvx512);
    k.silu_mul = &cpu_emulated::silu_mul_avx512;
    k.attention = {&cpu_emulated::attention_rows_avx512, &cpu_emulated::attention_cut_avx512,
                   &cpu_emulated::attention_merge_avx512};
    k.prompt_attention = k.attention;
    return k;
  }();
  static const VectorKernels kAmx = [] {
    VectorKernels k = kAvx512;
    k.isa = Isa::kAmx;
    k.prompt_attention = {&cpu_emulated::attention_rows_amx, &cpu_emulated::attention_cut_amx,
                          &cpu_emulated::attention_merge_avx512, cpu_emulated::kAmxQueryRows};
    return k;
  }();
  return isa == Isa::kAmx ? kAmx : kAvx512;
}

}  // namespace halfbyte::testing
