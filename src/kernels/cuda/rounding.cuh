// Rounds a row, four neighbours a thread, into the next linear's operand.
//
// Contract (docs/numerics.md 2 and 8): the numbers of the definition, held in BF16 times 2^kXExponent.
//   kA16         BF16 values.
//   kA8, kA4     codes, and codes times block scales; the row's or the tensor's scale is left to the reader (x_scale).
//   kMxA4/A8     codes times block scales.
// All of them are exact up to 2^77; beyond it they are infinite, which ends in an error. Every amax is exact, so nothing
// depends on the order in which threads meet.
#pragma once

#include "formats/bf16.h"
#include "formats/fp8.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prompt_layout.h"
#include "kernels/cuda/step_layout.h"

namespace halfbyte::cuda {

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
  float warps[2][32];
  float blocks[2][kMostClusterBlocks];  // written by all blocks of the cluster
};

// `use`: 0 or 1, each once in a kernel.
template <class Join>
__device__ __forceinline__ float cluster_reduce(ClusterScratch& scratch, int use, float v, Join join) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v = join(v, __shfl_xor_sync(~0u, v, mask));
  cg::cluster_group cluster = cg::this_cluster();
  const int warps = static_cast<int>(blockDim.x >> 5);
  if ((threadIdx.x & 31) == 0) scratch.warps[use][threadIdx.x >> 5] = v;
  __syncthreads();
  const int blocks = static_cast<int>(cluster.num_blocks());
  if (static_cast<int>(threadIdx.x) < blocks) {
    float sum = scratch.warps[use][0];
    for (int w = 1; w < warps; ++w) sum = join(sum, scratch.warps[use][w]);
    *cluster.map_shared_rank(&scratch.blocks[use][cluster.block_rank()], threadIdx.x) = sum;
  }
  cluster.sync();
  float sum = scratch.blocks[use][0];
  for (int b = 1; b < blocks; ++b) sum = join(sum, scratch.blocks[use][b]);
  return sum;
}

struct JoinAmax {
  __device__ __forceinline__ float operator()(float a, float b) const { return wider_amax(a, b); }
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

__device__ __forceinline__ uint2 pack_bf16(const float (&v)[4]) {
  return make_uint2(BF16::encode(v[0]) | static_cast<uint32_t>(BF16::encode(v[1])) << 16,
                    BF16::encode(v[2]) | static_cast<uint32_t>(BF16::encode(v[3])) << 16);
}

// A mode whose rounding looks at the whole row first.
HB_HOST_DEVICE constexpr bool needs_row_amax(RowMode mode, float static_alpha) {
  return mode == RowMode::kA8 || (mode == RowMode::kA4 && !(static_alpha > 0.0f));
}

inline constexpr float kNotANumber = __builtin_nanf("");

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

// kBits: 4 or 8.
template <int kBits>
__device__ __forceinline__ void round_mx(const float (&v)[4], float (&x)[4]) {
  const float amax = block_amax<8>(v);
  const float step = E8M0::decode(kBits == 4 ? MXFP4::scale(amax, Mxfp4Rule::kRound74) : MXFP8::scale(amax));
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float scaled = v[i] / step;
    x[i] = (kBits == 4 ? E2M1::decode(E2M1::encode(scaled)) : E4M3::decode(E4M3::encode(scaled))) * step;
  }
}

// Four neighbours of x^ as BF16 times 2^kXExponent; returns the row's scale. amax: of the row, where the mode needs it.
// Not for kBf16Rows. Blocks lie in neighbouring lanes: all lanes of a warp call it.
__device__ __forceinline__ float round_four(const RowOutput& out, const float (&v)[4], float amax, uint2& bits) {
  float x[4];
  float scale = 1.0f;
  switch (out.mode) {
    case RowMode::kA8: scale = round_a8(v, amax, out.static_alpha, x); break;
    case RowMode::kA4: scale = round_a4(v, amax, out.static_alpha, x); break;
    case RowMode::kMxA8: round_mx<8>(v, x); break;
    case RowMode::kMxA4: round_mx<4>(v, x); break;
    default:
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = BF16::round(v[i]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] *= power_of_two(kXExponent);
  bits = pack_bf16(x);
  return scale;
}

// Four neighbours of a row into the next linear's operand. Threads beyond k hold zeros. columns: padded M; amax: of the
// row, where the mode needs it. All lanes of a warp call it.
__device__ __forceinline__ void store_rounded(const RowOutput& out, int row, int element, int columns, int k,
                                              const float (&v)[4], float amax) {
  const bool inside = element < k;
  if (out.mode == RowMode::kBf16Rows) {
    if (inside)
      *reinterpret_cast<uint2*>(static_cast<uint16_t*>(out.x) + static_cast<size_t>(row) * k + element) = pack_bf16(v);
    return;
  }
  uint2 bits;
  const float scale = round_four(out, v, amax, bits);
  auto* x = static_cast<uint8_t*>(out.x);
  if (out.prompt_rows != 0) {
    // Up to whole k steps: what an earlier pass of another number of rows left there is overwritten.
    if (element < (k + kStepK - 1) / kStepK * kStepK)
      *reinterpret_cast<uint2*>(x + prompt_offset(out.prompt_rows, row, element)) = inside ? bits : make_uint2(0, 0);
  } else if (inside) {
    *reinterpret_cast<uint2*>(x + static_cast<size_t>(element / kStepK) * x_chunk_bytes(columns) +
                              x_offset(columns, row, element % kStepK)) = bits;
  }
  if (element == 0) out.x_scale[row] = scale;
}

// The same by a cluster, which finds the row's maximum first.
__device__ __forceinline__ void round_row(ClusterScratch& scratch, const RowOutput& out, const RowPlace& at,
                                          int columns, int k, const float (&v)[4]) {
  float amax = 0.0f;
  if (needs_row_amax(out.mode, out.static_alpha)) amax = cluster_reduce(scratch, 1, amax4(v), JoinAmax{});
  store_rounded(out, at.row, at.element, columns, k, v, amax);
}

}  // namespace halfbyte::cuda
