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
// d = a b + d, FP16 operands, FP32 sums: a is 16 rows x 16 K, b is 16 K x 8 columns.
__device__ __forceinline__ void mma_m16n8k16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void mma_m16n8k16_from_zero(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                       uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
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
