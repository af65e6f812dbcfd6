// The warp-group instructions of Hopper: D += A B with 64 rows of A in the registers of four warps (or in shared memory) and
// B in shared memory.
// The registers of A and D belong to the instruction until wgmma_wait says that it is done. Compiled for another device they
// trap: usable_device refuses it before.
#pragma once

#include <cstdint>

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HB_WGMMA(...) asm volatile(__VA_ARGS__)
#else
#define HB_WGMMA(...) __trap()
#endif

namespace halfbyte::cuda::ptx {

__device__ __forceinline__ void wgmma_fence() {
  HB_WGMMA("wgmma.fence.sync.aligned;" ::: "memory");
}
// What ordinary stores and cp.async have written to shared memory, as far as this thread has heard of it, will be seen by
// its tensor core instructions.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit() {
  HB_WGMMA("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Waits until at most kPending groups are under way.
template <int kPending>
__device__ __forceinline__ void wgmma_wait() {
  HB_WGMMA("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// After the last wait: no copy of the sums may be made before it (the compiler does not know that they are still to come).
template <int kCount>
__device__ __forceinline__ void hold(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// B as [column][64 K] BF16: rows of 128 bytes, eight of them an atom of 1,024 bytes (aligned so), 16-byte chunk c of row r
// at place c ^ (r mod 8), atoms one after another. Advancing by 16 K is 32 bytes.
__device__ __forceinline__ uint64_t wgmma_swizzled_rows(uint32_t shared) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kAtomStride = uint64_t{1024 >> 4} << 32,
                     kUnused = uint64_t{1} << 16;
  return kSwizzle128 | kAtomStride | kUnused | ((shared & 0x3FFFFu) >> 4);
}

// B as [64 columns][K] BF16: rows of 128 bytes, one a K, swizzled as above; `stride` bytes between two blocks of 64 columns.
// Advancing by 16 K is 2,048 bytes.
__device__ __forceinline__ uint64_t wgmma_swizzled_columns(uint32_t shared, uint32_t stride) {
  constexpr uint64_t kSwizzle128 = uint64_t{1} << 62, kAtomStride = uint64_t{1024 >> 4} << 32;
  return kSwizzle128 | kAtomStride | static_cast<uint64_t>(stride >> 4) << 16 | ((shared & 0x3FFFFu) >> 4);
}

// Lane (g, t) of warp w of the warp group: a as of mma_m16n8k16 for rows 16 w .. 16 w + 15; d[4 i + e] is row
// 16 w + g + 8 (e / 2), column 8 i + 2 t + e % 2.
#define HB_WGMMA_8(i)                                                                                         \
  "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), \
      "+f"(d[i + 7])
// clang-format off
__device__ __forceinline__ void wgmma_m64k16(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  HB_WGMMA(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"
      "%28,%29,%30,%31}, "
      "{%32,%33,%34,%35}, %36, 1, 1, 1, 0;\n"
      : HB_WGMMA_8(0), HB_WGMMA_8(8), HB_WGMMA_8(16), HB_WGMMA_8(24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_m64k16(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  HB_WGMMA(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"
      "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"
      "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
      "{%64,%65,%66,%67}, %68, 1, 1, 1, 0;\n"
      : HB_WGMMA_8(0), HB_WGMMA_8(8), HB_WGMMA_8(16), HB_WGMMA_8(24), HB_WGMMA_8(32), HB_WGMMA_8(40), HB_WGMMA_8(48), HB_WGMMA_8(56)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_m64k16(float (&d)[128], const uint32_t (&a)[4], uint64_t b) {
  HB_WGMMA(
      "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"
      "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"
      "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63,%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,"
      "%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95,%96,%97,%98,%99,%100,%101,%102,%103,%104,"
      "%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,"
      "%126,%127}, "
      "{%128,%129,%130,%131}, %132, 1, 1, 1, 0;\n"
      : HB_WGMMA_8(0), HB_WGMMA_8(8), HB_WGMMA_8(16), HB_WGMMA_8(24), HB_WGMMA_8(32), HB_WGMMA_8(40), HB_WGMMA_8(48), HB_WGMMA_8(56),
        HB_WGMMA_8(64), HB_WGMMA_8(72), HB_WGMMA_8(80), HB_WGMMA_8(88), HB_WGMMA_8(96), HB_WGMMA_8(104), HB_WGMMA_8(112), HB_WGMMA_8(120)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// B as [K][column] (values of a cache): wgmma_swizzled_columns.
__device__ __forceinline__ void wgmma_m64k16_columns(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  HB_WGMMA(
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"
      "%28,%29,%30,%31}, "
      "{%32,%33,%34,%35}, %36, 1, 1, 1, 1;\n"
      : HB_WGMMA_8(0), HB_WGMMA_8(8), HB_WGMMA_8(16), HB_WGMMA_8(24)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
__device__ __forceinline__ void wgmma_m64k16_columns(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  HB_WGMMA(
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"
      "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"
      "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
      "{%64,%65,%66,%67}, %68, 1, 1, 1, 1;\n"
      : HB_WGMMA_8(0), HB_WGMMA_8(8), HB_WGMMA_8(16), HB_WGMMA_8(24), HB_WGMMA_8(32), HB_WGMMA_8(40), HB_WGMMA_8(48), HB_WGMMA_8(56)
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// A, too, in shared memory, as rows. add: 0 begins with zeros.
__device__ __forceinline__ void wgmma_m64k16_shared(float (&d)[64], uint64_t a, uint64_t b, int add) {
  HB_WGMMA(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 "
      "{%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,"
      "%28,%29,%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,"
      "%54,%55,%56,%57,%58,%59,%60,%61,%62,%63}, "
      "%64, %65, p, 1, 1, 0, 0;\n}\n"
      : HB_WGMMA_8(0), HB_WGMMA_8(8), HB_WGMMA_8(16), HB_WGMMA_8(24), HB_WGMMA_8(32), HB_WGMMA_8(40), HB_WGMMA_8(48), HB_WGMMA_8(56)
      : "l"(a), "l"(b), "r"(add));
}
// clang-format on
#undef HB_WGMMA_8

// --- a cluster of two thread blocks ---

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t v;
  asm volatile("mov.u32 %0,%%cluster_ctarank;" : "=r"(v));
  return v;
}
// One arrival at the barrier of block `rank` of the cluster that lies where `barrier` lies in this one.
__device__ __forceinline__ void mbarrier_arrive_at(uint32_t barrier, uint32_t rank) {
  asm volatile(
      "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there,%0,%1;\nmbarrier.arrive.shared::cluster.b64 "
      "_,[there];\n}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}
// To the same place of both blocks' shared memory; each block's barrier hears of it. (Not for 12.0, which has no wgmma and
// would do it slowly.)
__device__ __forceinline__ void cp_async_bulk_both(uint32_t shared, const void* global, uint32_t bytes,
                                                   uint32_t barrier) {
  HB_WGMMA(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0],[%1],%2,[%3],%4;" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier), "h"(static_cast<uint16_t>(3))
      : "memory");
}

#undef HB_WGMMA
}  // namespace halfbyte::cuda::ptx
