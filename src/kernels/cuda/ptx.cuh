// One function an instruction, named after it.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "formats/e4m3.h"
#include "kernels/cuda/prompt_layout.h"

namespace halfbyte::cuda::ptx {

// What all lanes of a warp have, so that the compiler knows it: branches on it are the warp's.
__device__ __forceinline__ int uniform(int v) {
  return __shfl_sync(~0u, v, 0);
}

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// 16 bytes of weights, read once: past L1.
__device__ __forceinline__ uint4 ld_stream_v4(const void* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(p));
  return v;
}

// Numbers of the cache, read once, where they stand in program order.
__device__ __forceinline__ void ld_once(uint32_t (&v)[4], const void* p) {
  asm volatile("ld.global.L1::no_allocate.v4.u32 {%0,%1,%2,%3},[%4];"
               : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3])
               : "l"(p));
}
__device__ __forceinline__ void ld_once(uint32_t (&v)[2], const void* p) {
  asm volatile("ld.global.L1::no_allocate.v2.u32 {%0,%1},[%2];" : "=r"(v[0]), "=r"(v[1]) : "l"(p));
}

__device__ __forceinline__ uint4 lds_v4(uint32_t address) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(address));
  return v;
}
__device__ __forceinline__ uint32_t lds(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0,[%1];" : "=r"(v) : "r"(address));
  return v;
}

__device__ __forceinline__ uint2 lds_v2(uint32_t address) {
  uint2 v;
  asm volatile("ld.shared.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void sts(uint32_t address, uint32_t v) {
  asm volatile("st.shared.u32 [%0],%1;" ::"r"(address), "r"(v) : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address));
}

__device__ __forceinline__ void sts_v4(uint32_t address, const uint4& v) {
  asm volatile("st.shared.v4.u32 [%0],{%1,%2,%3,%4};" ::"r"(address), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}
// 16 bytes to shared memory; zeros when not `inside`.
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void* global, bool inside) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(shared), "l"(global), "r"(inside ? 16 : 0)
               : "memory");
}
// The same of all 16 bytes.
__device__ __forceinline__ void cp_async_16(uint32_t shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16;" ::"r"(shared), "l"(global) : "memory");
}
// Arrives at `barrier`, for one arrival that it counts on, once the thread's copies so far are there.
__device__ __forceinline__ void cp_async_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// Waits until at most kPending of this thread's groups are under way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
__device__ __forceinline__ void cp_async_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// d = a b + d, BF16 operands, FP32 sums: a is 16 rows x 16 K, b is 16 K x 8 columns.
__device__ __forceinline__ void mma_m16n8k16_bf16(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                                  uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
// The same with FP16 operands.
__device__ __forceinline__ void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
// Transposes 8 x 8 numbers of 16 bits: lane (g, t) gives row g, columns 2 t and 2 t + 1, and gets the same of the result.
__device__ __forceinline__ uint32_t movmatrix_trans(uint32_t v) {
  uint32_t d;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0,%1;" : "=r"(d) : "r"(v));
  return d;
}
// Two E4M3 codes, in bits 8 to 15 and 24 to 31, as FP16, by shifts and one product.
__device__ __forceinline__ uint32_t f16_of_fp8(uint32_t codes) {
  const uint32_t bits = fp8_as_f16(codes), power = kFp8PowerF16;
  const __half2 product = __hmul2(reinterpret_cast<const __half2&>(bits), reinterpret_cast<const __half2&>(power));
  return reinterpret_cast<const uint32_t&>(product);
}
// Four E4M3 codes as FP16, exactly.
__device__ __forceinline__ void cvt_f16x2_e4m3x2(uint32_t& low, uint32_t& high, uint32_t codes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  low = f16_of_fp8(__byte_perm(codes, 0, 0x1404));
  high = f16_of_fp8(__byte_perm(codes, 0, 0x3424));
#else
  asm("{\n.reg .b16 l,h;\nmov.b32 {l,h},%2;\ncvt.rn.f16x2.e4m3x2 %0,l;\ncvt.rn.f16x2.e4m3x2 %1,h;\n}\n"
      : "=r"(low), "=r"(high)
      : "r"(codes));
#endif
}
__device__ __forceinline__ void mma_m16n8k16_bf16_from_zero(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                                            uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%10,%10,%10,%10};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.f));
}

template <int kTable>
__device__ __forceinline__ uint32_t lop3(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("lop3.b32 %0,%1,%2,%3,%4;" : "=r"(d) : "r"(a), "r"(b), "r"(c), "n"(kTable));
  return d;
}
__device__ __forceinline__ uint32_t xor_and(uint32_t a, uint32_t b, uint32_t mask) {
  return lop3<0x28>(a, b, mask);
}
__device__ __forceinline__ uint32_t and_xor(uint32_t a, uint32_t mask, uint32_t bits) {
  return lop3<0x6A>(a, mask, bits);
}
__device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t mask, uint32_t bits) {
  return lop3<0xEA>(a, mask, bits);
}

__device__ __forceinline__ void mbarrier_init(uint32_t barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0],%1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _,[%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void mbarrier_arrive_expect_tx(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _,[%0],%1;" ::"r"(barrier), "r"(bytes) : "memory");
}
__device__ __forceinline__ bool mbarrier_try_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p,[%1],%2;\nselp.u32 %0,1,0,p;\n}\n"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done != 0;
}
// Asks without waiting.
__device__ __forceinline__ bool mbarrier_test_wait(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared::cta.b64 p,[%1],%2;\nselp.u32 %0,1,0,p;\n}\n"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done != 0;
}
__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}
__device__ __forceinline__ void cp_async_bulk(uint32_t shared, const void* global, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0],[%1],%2,[%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}
// The device's clock in ns.
__device__ __forceinline__ uint64_t globaltimer() {
  uint64_t ns;
  asm volatile("mov.u64 %0,%%globaltimer;" : "=l"(ns));
  return ns;
}
__device__ __forceinline__ uint32_t clock32() {
  uint32_t v;
  asm volatile("mov.u32 %0,%%clock;" : "=r"(v));
  return v;
}
__device__ __forceinline__ uint64_t createpolicy_evict_first() {
  uint64_t policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0,1.0;" : "=l"(policy));
  return policy;
}
__device__ __forceinline__ void cp_async_bulk_hint(uint32_t shared, const void* global, uint32_t bytes,
                                                   uint32_t barrier, uint64_t policy) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0],[%1],%2,[%3],%4;" ::"r"(
          shared),
      "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void bar_sync(int id, int threads) {
  asm volatile("bar.sync %0,%1;" ::"r"(id), "r"(threads) : "memory");
}
__device__ __forceinline__ void bar_arrive(int id, int threads) {
  asm volatile("bar.arrive %0,%1;" ::"r"(id), "r"(threads) : "memory");
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
__device__ __forceinline__ float rcp_approx(float v) {
  float r;
  asm("rcp.approx.f32 %0,%1;" : "=f"(r) : "f"(v));
  return r;
}
__device__ __forceinline__ float rcp_approx_ftz(float v) {
  float r;
  asm("rcp.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(v));
  return r;
}
__device__ __forceinline__ float ex2_approx_ftz(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(r) : "f"(v));
  return r;
}
// Two numbers as BF16, to nearest even; `low` in the low half.
__device__ __forceinline__ uint32_t cvt_bf16x2(float low, float high) {
  uint32_t d;
  asm("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(d) : "f"(high), "f"(low));
  return d;
}
// Two numbers rounded to E4M3, saturating, as FP32.
__device__ __forceinline__ float2 round_e4m3x2(float low, float high) {
  float2 d;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 890
  d = make_float2(E4M3::decode(E4M3::encode(low)), E4M3::decode(E4M3::encode(high)));
#else
  asm("{\n.reg .b16 c,l,h;\n.reg .b32 p;\ncvt.rn.satfinite.e4m3x2.f32 c,%3,%2;\ncvt.rn.f16x2.e4m3x2 p,c;\n"
      "mov.b32 {l,h},p;\ncvt.f32.f16 %0,l;\ncvt.f32.f16 %1,h;\n}\n"
      : "=f"(d.x), "=f"(d.y)
      : "f"(low), "f"(high));
#endif
  return d;
}
// Thread blocks of the cluster, and an address of this block's shared memory in that of another.
__device__ __forceinline__ uint32_t cluster_blocks() {
  uint32_t v;
  asm("mov.u32 %0,%%cluster_nctarank;" : "=r"(v));
  return v;
}
__device__ __forceinline__ uint32_t cluster_address(uint32_t shared, uint32_t rank) {
  uint32_t v;
  asm("mapa.shared::cluster.u32 %0,%1,%2;" : "=r"(v) : "r"(shared), "r"(rank));
  return v;
}
__device__ __forceinline__ float2 ld_cluster_v2(uint32_t address) {
  float2 v;
  asm volatile("ld.shared::cluster.v2.f32 {%0,%1},[%2];" : "=f"(v.x), "=f"(v.y) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ float4 ld_cluster_v4(uint32_t address) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0,%1,%2,%3},[%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(address)
               : "memory");
  return v;
}
__device__ __forceinline__ void st_cluster_v2(uint32_t address, float a, float b) {
  asm volatile("st.shared::cluster.v2.f32 [%0],{%1,%2};" ::"r"(address), "f"(a), "f"(b) : "memory");
}
// The cluster's barrier in two halves.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Before 9.0 kernels of a stream run one after the other: nothing to wait for.
__device__ __forceinline__ void griddepcontrol_wait() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void griddepcontrol_launch_dependents() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace halfbyte::cuda::ptx
