// The wrappers of the product's kernels, one function an instruction, and those that only steps of the ladder use.
#pragma once

#include <cstdint>
#include <cstdio>

#include "kernels/cuda/ptx.cuh"

namespace halfbyte::ladder::ptx {

using namespace halfbyte::cuda::ptx;

__device__ __forceinline__ uint32_t ld_stream(const void* p) {
  uint32_t v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0,[%1];" : "=r"(v) : "l"(p));
  return v;
}
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
#ifdef LADDER_TRAP
// In the product's place: a wait that never ends says where and stops the kernel.
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  for (uint32_t spins = 0; !mbarrier_try_wait(barrier, parity);) {
    if (++spins == 1u << 20) {
      printf("stuck: block %d thread %d barrier %u parity %u\n", blockIdx.x, threadIdx.x, barrier, parity);
      __trap();
    }
  }
}
#endif
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(shared), "l"(global) : "memory");
}
__device__ __forceinline__ void cp_async_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace halfbyte::ladder::ptx
