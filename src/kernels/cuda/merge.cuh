// The merge of attention's parts, four neighbours at a time: by attention itself (attention_merged.cu), by a kernel of its own
// (rows.cu) or by the linear that reads the row (linear_fp4.cuh). All give the same numbers.
#pragma once

#include "kernels/cuda/launch.cuh"

namespace halfbyte::cuda {

// Attention's result at four neighbours of a row, from its parts in ascending order; zeros where not `inside`. All lanes of
// a warp call it, each with the four after its left neighbour's: 16 lanes lie in one head and have one part's statistics
// each. stat_of(part): maximum (times log2 e) and sum of exponentials; part_of(part): the four sums, also where not
// `inside`.
template <class StatOf, class PartOf>
__device__ __forceinline__ void merge_parts(int splits, bool inside, StatOf stat_of, PartOf part_of, float (&v)[4]) {
  static_assert(kMaxSplits == 16);
  const int own = static_cast<int>(threadIdx.x) % kMaxSplits;
  const float2 stat = own < splits ? stat_of(own) : make_float2(-INFINITY, 0.0f);
  float4 part[kMaxSplits];
#pragma unroll
  for (int s = 0; s < kMaxSplits; ++s) part[s] = s < splits ? part_of(s) : make_float4(0, 0, 0, 0);
  float most = stat.x;
#pragma unroll
  for (int mask = kMaxSplits / 2; mask > 0; mask /= 2) most = fmaxf(most, __shfl_xor_sync(~0u, most, mask));
  const float own_factor = ptx::ex2_approx_ftz(stat.x - most), own_total = stat.y * own_factor;
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = 0.0f;
#pragma unroll
  for (int s = 0; s < kMaxSplits; ++s) {
    if (s >= splits) break;
    const float factor = __shfl_sync(~0u, own_factor, s, kMaxSplits);
    total += __shfl_sync(~0u, own_total, s, kMaxSplits);
    v[0] += part[s].x * factor;
    v[1] += part[s].y * factor;
    v[2] += part[s].z * factor;
    v[3] += part[s].w * factor;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = inside ? v[i] / total : 0.0f;
}

// The parts of a row of `position` + 1 positions.
__device__ __forceinline__ int splits_of(int position) {
  // At most 16: counted, which takes fewer instructions than a division.
  const int span = split_span(position + 1), lane = static_cast<int>(threadIdx.x) % 32;
  return __popc(__ballot_sync(~0u, lane < kMaxSplits && lane * span <= position));
}

// The same from the device's memory; zeros beyond the row.
__device__ __forceinline__ void merge_parts(const MergeRows& a, int row, int element, int position, float (&v)[4]) {
  const bool inside = element < a.heads * a.head_dim;
  if (!inside) element = 0;
  const size_t first = (static_cast<size_t>(row) * a.heads + element / a.head_dim) * kMaxSplits;
  const float* parts = a.parts + first * a.head_dim + element % a.head_dim;
  merge_parts(
      splits_of(position), inside,
      [&](int part) { return __ldcg(reinterpret_cast<const float2*>(a.stats) + first + part); },
      [&](int part) { return __ldcg(reinterpret_cast<const float4*>(parts + static_cast<size_t>(part) * a.head_dim)); },
      v);
}

}  // namespace halfbyte::cuda
