// Clusters of thread blocks, which devices have from compute capability 9.0 on. Kernels that need them begin with
// HB_FROM_SM90(): compiled for an older device they trap, and kernel_set.h never chooses them there.
#pragma once

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#include <cooperative_groups.h>
#define HB_FROM_SM90() static_cast<void>(0)

namespace halfbyte::cuda {
namespace cg = cooperative_groups;
}
#else
#define HB_FROM_SM90()       \
  do {                       \
    __trap();                \
    __builtin_unreachable(); \
  } while (false)

namespace halfbyte::cuda::cg {
// Names only, for the compiler.
struct cluster_group {
  __device__ unsigned block_rank() const { return 0; }
  __device__ void sync() const {}
  template <class T>
  __device__ T* map_shared_rank(T* p, int) const {
    return p;
  }
};
__device__ inline cluster_group this_cluster() {
  return {};
}
}  // namespace halfbyte::cuda::cg
#endif
