#include "kernels.h"

#include "kernels/kernel_lists.h"

namespace halfbyte::testing {

const std::vector<LinearKernel>& emulated_linear_kernels() {
  static const std::vector<LinearKernel> kAll = [] {
    std::vector<LinearKernel> all;
    for (const auto list :
         {cpu_emulated::linear_nvfp4_avx512(), cpu_emulated::linear_mxfp4_avx512(), cpu_emulated::linear_bf16_avx512(),
          cpu_emulated::linear_nvfp4_amx(), cpu_emulated::linear_mxfp4_amx(), cpu_emulated::linear_bf16_amx()}) {
      all.insert(all.end(), list.begin(), list.end());
    }
    return all;
  }();
  return kAll;
}

}  // namespace halfbyte::testing
