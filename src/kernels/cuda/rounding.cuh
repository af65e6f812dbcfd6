// Rounds a row that a cluster holds, four neighbours a thread, into the next linear's operand.
//
// Contract (docs/numerics.md 2 and 8): the numbers of the definition, held in FP16.
//   kA16       BF16 values times 2^(9 - e), e the exponent of the row's amax: exact down to 2^-16 of it, and below that
//              at most 2^-34 of it away.
//   kA8, kA4   codes times block scales: exact.
//   kMxA4/A8   codes times block scales, scaled by the row's largest: exact while block exponents lie within 2^36 (2^22
//              for MXFP8) of it.
// Every amax is exact, so nothing depends on the order in which the cluster's threads meet.
#pragma once

#include <cooperative_groups.h>
#include <cuda_fp16.h>

#include "formats/bf16.h"
#include "formats/fp8.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/step_layout.h"

namespace halfbyte::cuda {

namespace cg = cooperative_groups;

inline constexpr int kMostRowThreads = 1024;
inline constexpr int kValuesPerThread = 4;

// A thread's place in its row.
struct RowPlace {
  int row;      // of the pass
  int element;  // the first of its four
  __device__ __forceinline__ RowPlace()
      : row(static_cast<int>(blockIdx.y)),
        element(static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) * kValuesPerThread)) {}
};

// Sums and maxima over a cluster. Sums go lane by lane (xor 16 .. 1), warps ascending, thread blocks ascending. Each
// thread block hands its part to all others, so that one barrier is enough and none reads a block that has ended.
struct ClusterScratch {
  float2 warps[2][32];
  float2 blocks[2][kMostClusterBlocks];  // written by all blocks of the cluster
};

// `use`: 0 or 1, each once in a kernel.
template <class Join>
__device__ __forceinline__ float2 cluster_reduce(ClusterScratch& scratch, int use, float2 v, Join join) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) {
    v = join(v, make_float2(__shfl_xor_sync(~0u, v.x, mask), __shfl_xor_sync(~0u, v.y, mask)));
  }
  cg::cluster_group cluster = cg::this_cluster();
  const int warps = static_cast<int>(blockDim.x >> 5);
  if ((threadIdx.x & 31) == 0) scratch.warps[use][threadIdx.x >> 5] = v;
  __syncthreads();
  const int blocks = static_cast<int>(cluster.num_blocks());
  if (static_cast<int>(threadIdx.x) < blocks) {
    float2 sum = scratch.warps[use][0];
    for (int w = 1; w < warps; ++w) sum = join(sum, scratch.warps[use][w]);
    *cluster.map_shared_rank(&scratch.blocks[use][cluster.block_rank()], threadIdx.x) = sum;
  }
  cluster.sync();
  float2 sum = scratch.blocks[use][0];
  for (int b = 1; b < blocks; ++b) sum = join(sum, scratch.blocks[use][b]);
  return sum;
}

struct JoinAmax {
  __device__ __forceinline__ float2 operator()(float2 a, float2 b) const {
    return make_float2(wider_amax(a.x, b.x), 0.0f);
  }
};

__device__ __forceinline__ float amax4(const float (&v)[4]) {
  return wider_amax(wider_amax(wider_amax(magnitude(v[0]), v[1]), v[2]), v[3]);
}
// Of the 4 * kThreads neighbours.
template <int kThreads>
__device__ __forceinline__ float block_amax(const float (&v)[4]) {
  float amax = amax4(v);
#pragma unroll
  for (int mask = 1; mask < kThreads; mask *= 2) amax = wider_amax(amax, __shfl_xor_sync(~0u, amax, mask));
  return amax;
}

// Writes four neighbours of x^.
__device__ __forceinline__ void store_x(const RowOutput& out, int columns, int column, int k, const float (&v)[4]) {
  const __half2 low = __floats2half2_rn(v[0], v[1]), high = __floats2half2_rn(v[2], v[3]);
  uint2 bits;
  bits.x = *reinterpret_cast<const uint32_t*>(&low);
  bits.y = *reinterpret_cast<const uint32_t*>(&high);
  auto* to = static_cast<uint8_t*>(out.x) + static_cast<size_t>(k / kStepK) * x_chunk_bytes(columns) +
             x_offset(columns, column, k % kStepK);
  *reinterpret_cast<uint2*>(to) = bits;
}

inline constexpr float kNotANumber = __builtin_nanf("");

__device__ __forceinline__ float round_a16(const float (&v)[4], float amax, float (&x)[4]) {
  const bool finite = is_finite(amax);
  const int e = !finite || amax < 0x1p-100f ? -100 : floor_log2(amax);
  const float up = power_of_two(9 - e);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = BF16::round(v[i]) * up;
  return finite ? power_of_two(e - 9) : kNotANumber;
}

__device__ __forceinline__ float round_a8(const float (&v)[4], float amax, float static_alpha, float (&x)[4]) {
  const bool finite = is_finite(amax);
  const float scale = !finite ? kNotANumber : static_alpha > 0.0f ? static_alpha : FP8Row::scale(amax);
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = finite ? E4M3::decode(E4M3::encode(v[i] / scale)) : 0.0f;
  return scale;
}

__device__ __forceinline__ float round_a4(const float (&v)[4], float amax, float static_alpha, float (&x)[4]) {
  const float alpha = static_alpha > 0.0f ? static_alpha : NVFP4::tensor_scale(amax);
  const float scale = E4M3::decode(NVFP4::activation_scale(block_amax<4>(v), alpha));
  const float step = scale * alpha;
  const bool usable = step > 0.0f;  // false for NaN, which the product below keeps
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = (usable ? E2M1::decode(E2M1::encode(v[i] / step)) : 0.0f) * scale;
  return alpha;
}

// kBits: 4 or 8. A block's exponent lies at most a row's largest one.
template <int kBits>
__device__ __forceinline__ float round_mx(const float (&v)[4], float amax, float (&x)[4]) {
  constexpr int kHead = kBits == 4 ? 13 : 7;  // the largest code times 2^kHead is below 65504
  const auto byte_of = [](float a) -> uint8_t {
    return kBits == 4 ? MXFP4::scale(a, Mxfp4Rule::kRound74) : MXFP8::scale(a);
  };
  const uint8_t scale = byte_of(block_amax<8>(v)), most = byte_of(amax);
  const bool usable = scale != E8M0::kNaN;
  const float step = E8M0::decode(scale);
  const int shift = kHead + static_cast<int>(scale) - static_cast<int>(most);
  const float up = !usable ? kNotANumber : shift < -100 ? 0.0f : power_of_two(shift);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float code = !usable      ? 0.0f
                       : kBits == 4 ? E2M1::decode(E2M1::encode(v[i] / step))
                                    : E4M3::decode(E4M3::encode(v[i] / step));
    x[i] = code * up;
  }
  return most == E8M0::kNaN ? kNotANumber : E8M0::decode(most) * power_of_two(-kHead);
}

// amax_bound > 0: a bound that is at most twice the row's amax, good enough for kA16's power of two; saves a meeting of
// the cluster. columns: padded M. Threads beyond k hold zeros.
__device__ __forceinline__ void round_row(ClusterScratch& scratch, const RowOutput& out, const RowPlace& at,
                                          int columns, int k, float (&v)[4], float amax_bound) {
  const bool inside = at.element < k;
  if (out.mode == RowMode::kBf16Rows) {
    if (!inside) return;
    uint2 bits;
    bits.x = BF16::encode(v[0]) | static_cast<uint32_t>(BF16::encode(v[1])) << 16;
    bits.y = BF16::encode(v[2]) | static_cast<uint32_t>(BF16::encode(v[3])) << 16;
    *reinterpret_cast<uint2*>(static_cast<uint16_t*>(out.x) + static_cast<size_t>(at.row) * k + at.element) = bits;
    return;
  }
  const bool needs_amax =
      out.mode == RowMode::kA16 ? !(amax_bound > 0.0f) : !(out.mode == RowMode::kA4 && out.static_alpha > 0.0f);
  float amax = amax_bound;
  if (needs_amax) amax = cluster_reduce(scratch, 1, make_float2(amax4(v), 0.0f), JoinAmax{}).x;
  float x[4];
  float scale = 1.0f;
  switch (out.mode) {
    case RowMode::kA16: scale = round_a16(v, amax, x); break;
    case RowMode::kA8: scale = round_a8(v, amax, out.static_alpha, x); break;
    case RowMode::kA4: scale = round_a4(v, amax, out.static_alpha, x); break;
    case RowMode::kMxA8: scale = round_mx<8>(v, amax, x); break;
    default: scale = round_mx<4>(v, amax, x); break;
  }
  if (inside) store_x(out, columns, at.row, at.element, x);
  if (at.element == 0) out.x_scale[at.row] = scale;
}

}  // namespace halfbyte::cuda
