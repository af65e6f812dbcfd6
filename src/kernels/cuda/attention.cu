// Attention of single query rows over a paged BF16 or FP8 cache, cut into parts at absolute positions.
//
// A thread block has one part of one KV head of one row: it adds the slots of q (and k, v), norms and rotates them,
// appends the row's key and value, and leaves sums that merge_rows divides. Keys go to the tensor cores as the 16-row
// operand with the group's query heads as columns (q as two BF16 halves: 16 bits), values are multiplied in FP32.
//
// Moves   2 x length x head_dim x 2 bytes (FP8: 1) a KV head and row, once; slots of q for every part from L2.
// Shapes  head_dim 64 or 128, up to 8 query heads a KV head, pages of 16 or more positions.
// Order   parts of split_span(length) positions; in a part stream i of 8 has the 16-position groups g with g mod 8 = i,
//         ascending, with a running maximum; the streams ascending; the parts ascending (merge_rows). It depends on the
//         row's own length only.
#include <cuda_bf16.h>

#include "base/exp32.h"
#include "formats/bf16.h"
#include "kernels/cuda/head_reader.cuh"

namespace halfbyte::cuda {
namespace {
constexpr int kStreams = 8;          // a part's 16-position groups go to these in turn
constexpr int kGroupPositions = 16;  // positions that a warp takes at once
constexpr int kHeadColumns = 8;      // columns of the MMA

// Of KV head `head`: its key (normed and rotated) or its value.
template <int kDim>
__device__ __forceinline__ HeadReader<kDim> kv_reader(const AttentionRows& a, bool is_value, int head, int position,
                                                      int lane) {
  return HeadReader<kDim>(a, (a.heads + (is_value ? a.kv_heads : 0) + head) * kDim, is_value ? nullptr : a.k_norm,
                          !is_value, position, lane);
}

// Keys (0) or values (1): what their numbers are divided by in the cache.
__device__ __forceinline__ float cache_scale(const KvPages& kv, bool is_value) {
  return is_value ? kv.value_scale : kv.key_scale;
}

template <class Kv, int kDim>
__global__ void __launch_bounds__(64) append_kernel(const __grid_constant__ AttentionRows a) {
  const int head = blockIdx.x, row = blockIdx.y, lane = threadIdx.x & 31;
  const bool is_value = threadIdx.x >= 32;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int position = a.positions[row];
  if (position < 0) return;
  const HeadVector<kDim> h = kv_reader<kDim>(a, is_value, head, position, lane).read(row);
  store_head<Kv>(h, cache_row<Kv>(a.kv, row, a.kv_heads, kDim, is_value, head, position), cache_scale(a.kv, is_value),
                 lane);
}

// 16 positions of keys and values in a warp's registers.
// Keys: lane (g, t) has of rows g and g + 8 the dimensions 32 c + 8 t .. + 7: two k16 steps each, in an order of
// dimensions that q shares. Values: kRowLanes lanes a row, 8 dimensions each.
template <class Kv, int kDim>
struct Group {
  using Element = typename Kv::Element;
  using Eight = typename Kv::Eight;
  static constexpr int kChunks = kDim / 32;
  static constexpr int kRowLanes = kDim / 8;
  static constexpr int kRowsPerLoad = 32 / kRowLanes;
  static constexpr int kLoads = kGroupPositions / kRowsPerLoad;
  Eight keys[2][kChunks];
  Eight values[kLoads];

  __device__ __forceinline__ void load_keys(const Element* first, int lane) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
        keys[r][c] = *reinterpret_cast<const Eight*>(first + ((lane >> 2) + 8 * r) * kDim + c * 32 + (lane & 3) * 8);
    }
  }
  __device__ __forceinline__ void load_values(const Element* first, int lane) {
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      values[i] =
          *reinterpret_cast<const Eight*>(first + (i * kRowsPerLoad + lane / kRowLanes) * kDim + lane % kRowLanes * 8);
  }
  // The position `own` of the group takes its key and value from shared memory.
  __device__ __forceinline__ void patch(int own, const Element* key, const Element* value, int lane) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        if ((lane >> 2) + 8 * r == own) keys[r][c] = *reinterpret_cast<const Eight*>(key + c * 32 + (lane & 3) * 8);
      }
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (i * kRowsPerLoad + lane / kRowLanes == own)
        values[i] = *reinterpret_cast<const Eight*>(value + lane % kRowLanes * 8);
    }
  }
};

// kGroup: heads that are compiled; a.heads / a.kv_heads of them are there. kWarps: 8 or 4; a warp takes one or two streams,
// one after the other, so that the sums are the same.
template <class Kv, int kDim, int kGroup>
struct AttentionShared {
  uint16_t query[2][kHeadColumns][kDim];       // high and low halves
  alignas(16) typename Kv::Element key[kDim];  // of the row itself
  alignas(16) typename Kv::Element value[kDim];
  float weights[kStreams][kGroupPositions][kHeadColumns];  // exponentials of a group
  float stats[kStreams][kHeadColumns][2];
  float sums[kStreams][kGroup][kDim];
};

// Running state of a warp: for the heads 2 t and 2 t + 1 of lane (g, t) maximum and sum; sums of values for all heads.
template <int kDim, int kGroup>
struct WarpState {
  float most[2] = {-INFINITY, -INFINITY};
  float total[2] = {0.0f, 0.0f};
  float sums[kGroup][8] = {};
};

template <class Kv, int kDim>
__device__ __forceinline__ void score_group(float (&score)[4], const Group<Kv, kDim>& kv,
                                            const uint16_t (&query)[2][kHeadColumns][kDim], int lane) {
  const int g = lane >> 2, t = lane & 3;
  float sums[2][2][4] = {};  // by half of q and half of the k16 pair: short chains of dependent MMAs
#pragma unroll
  for (int c = 0; c < Group<Kv, kDim>::kChunks; ++c) {
    const uint4 low = Kv::widen(kv.keys[0][c]), high = Kv::widen(kv.keys[1][c]);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      const uint4 q = *reinterpret_cast<const uint4*>(&query[part][g][c * 32 + t * 8]);
      ptx::mma_m16n8k16_bf16(sums[part][0], low.x, high.x, low.y, high.y, q.x, q.y);
      ptx::mma_m16n8k16_bf16(sums[part][1], low.z, high.z, low.w, high.w, q.z, q.w);
    }
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) score[e] = (sums[0][0][e] + sums[0][1][e]) + (sums[1][0][e] + sums[1][1][e]);
}

// Across the lanes g of one t.
template <class Join>
__device__ __forceinline__ float across_positions(float v, Join join) {
  v = join(v, __shfl_xor_sync(~0u, v, 4));
  v = join(v, __shfl_xor_sync(~0u, v, 8));
  return join(v, __shfl_xor_sync(~0u, v, 16));
}

// Scores -> exponentials in `weights` [position][head]; returns the factors by which earlier sums shrink.
template <int kDim, int kGroup>
__device__ __forceinline__ void soften(WarpState<kDim, kGroup>& state, const float (&score)[4], int valid, float scale,
                                       float (&weights)[kGroupPositions][kHeadColumns], float (&shrink)[2], int lane) {
  const int g = lane >> 2, t = lane & 3;
  const auto largest = [](float a, float b) { return fmaxf(a, b); };
  const auto plus = [](float a, float b) { return a + b; };
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float s0 = g < valid ? score[h] * scale : -INFINITY;
    const float s1 = g + 8 < valid ? score[2 + h] * scale : -INFINITY;
    const float most = fmaxf(state.most[h], across_positions(fmaxf(s0, s1), largest));
    const float w0 = exp32(s0 - most), w1 = exp32(s1 - most);
    shrink[h] = exp32(state.most[h] - most);
    state.total[h] = state.total[h] * shrink[h] + across_positions(w0 + w1, plus);
    state.most[h] = most;
    weights[g][2 * t + h] = w0;
    weights[g + 8][2 * t + h] = w1;
  }
}

template <class Kv, int kDim, int kGroup>
__device__ __forceinline__ void add_values(WarpState<kDim, kGroup>& state, const Group<Kv, kDim>& kv,
                                           const float (&weights)[kGroupPositions][kHeadColumns],
                                           const float (&shrink)[2], int lane) {
  using G = Group<Kv, kDim>;
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
    const float factor = __shfl_sync(~0u, shrink[h % 2], h / 2);  // lane (0, h / 2) holds heads 2 t and 2 t + 1
#pragma unroll
    for (int d = 0; d < 8; ++d) state.sums[h][d] *= factor;
  }
#pragma unroll
  for (int i = 0; i < G::kLoads; ++i) {
    const float* w = weights[i * G::kRowsPerLoad + lane / G::kRowLanes];
    const uint4 eight = Kv::widen(kv.values[i]);
    const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      const float p = w[h];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        state.sums[h][2 * j] = fmaf(p, __uint_as_float(words[j] << 16), state.sums[h][2 * j]);
        state.sums[h][2 * j + 1] = fmaf(p, __uint_as_float(words[j] & 0xFFFF0000u), state.sums[h][2 * j + 1]);
      }
    }
  }
}

// A head of the group's queries into shared memory, as two BF16 halves.
template <class Kv, int kDim, int kGroup>
__device__ __forceinline__ void store_query(AttentionShared<Kv, kDim, kGroup>& shared, int column,
                                            const HeadVector<kDim>& h, int lane) {
#pragma unroll
  for (int i = 0; i < HeadVector<kDim>::kPerLane; ++i) {
    const uint16_t high = BF16::encode(h.v[i]);
    shared.query[0][column][lane + 32 * i] = high;
    shared.query[1][column][lane + 32 * i] = BF16::encode(h.v[i] - BF16::decode(high));
  }
}

// The group's queries, and with `own` the row's key and value, into shared memory. Waits for the kernel ahead in the
// middle: what never changes is read before, by the warp that needs it.
template <class Kv, int kDim, int kGroup, int kWarps>
__device__ __forceinline__ void prepare(const AttentionRows& a, AttentionShared<Kv, kDim, kGroup>& shared, int row,
                                        int kv_head, int position, bool own) {
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = static_cast<int>(threadIdx.x & 31);
  const int group = a.heads / a.kv_heads;
  const auto query = [&](int head) {
    return HeadReader<kDim>(a, (kv_head * group + min(head, group - 1)) * kDim, a.q_norm, true, position, lane);
  };
  // The last two warps have the row's own key and value, the others a head each; what is left over comes after.
  constexpr int kHeadWarps = kWarps - 2;
  const bool is_value = warp == kWarps - 1;
  const HeadReader<kDim> first =
      warp < kHeadWarps ? query(warp) : kv_reader<kDim>(a, is_value, kv_head, position, lane);
  for (int column = group + warp; column < kHeadColumns; column += kWarps)
    store_query<Kv, kDim, kGroup>(shared, column, HeadVector<kDim>{}, lane);  // heads that are not there
  ptx::griddepcontrol_wait();
  if (warp < kHeadWarps) {
    if (warp < group) store_query<Kv, kDim, kGroup>(shared, warp, first.read(row), lane);
  } else if (own) {
    const HeadVector<kDim> h = first.read(row);
    const float scale = cache_scale(a.kv, is_value);
    store_head<Kv>(h, is_value ? shared.value : shared.key, scale, lane);
    store_head<Kv>(h, cache_row<Kv>(a.kv, row, a.kv_heads, kDim, is_value, kv_head, position), scale, lane);
  }
  for (int head = warp + kHeadWarps; head < group; head += kWarps)
    store_query<Kv, kDim, kGroup>(shared, head, query(head).read(row), lane);
}

// A stream's sums and statistics into shared memory.
template <class Kv, int kDim, int kGroup>
__device__ __forceinline__ void keep_stream(AttentionShared<Kv, kDim, kGroup>& shared,
                                            const WarpState<kDim, kGroup>& state, int stream, int lane) {
  using G = Group<Kv, kDim>;
  if (lane < 4) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      shared.stats[stream][2 * lane + h][0] = state.most[h];
      shared.stats[stream][2 * lane + h][1] = state.total[h];
    }
  }
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
#pragma unroll
    for (int d = 0; d < 8; ++d) {
      float v = state.sums[h][d];
#pragma unroll
      for (int mask = G::kRowLanes; mask < 32; mask *= 2) v += __shfl_xor_sync(~0u, v, mask);
      if (lane < G::kRowLanes) shared.sums[stream][h][lane * 8 + d] = v;
    }
  }
}

// Writes the part: the streams' sums and statistics, joined in order.
template <class Kv, int kDim, int kGroup, int kWarps>
__device__ __forceinline__ void write_part(const AttentionRows& a, const AttentionShared<Kv, kDim, kGroup>& shared,
                                           int row, int kv_head, int split) {
  const int group = a.heads / a.kv_heads;
  for (int i = static_cast<int>(threadIdx.x); i < group * kDim; i += kWarps * 32) {
    const int h = i / kDim, d = i % kDim;
    float most = shared.stats[0][h][0];
#pragma unroll
    for (int w = 1; w < kStreams; ++w) most = fmaxf(most, shared.stats[w][h][0]);
    float sum = 0.0f, total = 0.0f;
#pragma unroll
    for (int w = 0; w < kStreams; ++w) {
      const float factor = exp32(shared.stats[w][h][0] - most);
      sum += shared.sums[w][h][d] * factor;
      total += shared.stats[w][h][1] * factor;
    }
    const size_t at = (static_cast<size_t>(row) * a.heads + kv_head * group + h) * kMaxSplits + split;
    a.parts[at * kDim + d] = Kv::value(sum, a);
    if (d == 0) *reinterpret_cast<float2*>(a.stats + at * 2) = make_float2(most, total);
  }
}

// Registers: beside a linear's thread block of M = 1 there must be room for this one, or it comes late.
template <class Kv, int kDim, int kGroup, int kWarps>
__global__ void __maxnreg__(kWarps == 4   ? 168
                            : kGroup == 8 ? 160
                                          : 128)
    attention_kernel(const __grid_constant__ AttentionRows a, bool own_row) {
  __shared__ __align__(16) AttentionShared<Kv, kDim, kGroup> shared;
  const int split = blockIdx.x, kv_head = blockIdx.y, row = blockIdx.z;
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = static_cast<int>(threadIdx.x & 31);
  ptx::griddepcontrol_launch_dependents();
  // Positions are set before the step's first kernel lets others begin, and earlier positions' keys before that.
  if (!own_row) ptx::griddepcontrol_wait();
  const int position = a.positions[row];
  const int span = split_span(position + 1);
  const int begin = split * span, end = min(position + 1, begin + span);
  if (position < 0 || begin >= end) {
    ptx::griddepcontrol_wait();
    return;
  }
  const auto first_row = [&](int which, int at) {
    return cache_row<Kv>(a.kv, row, a.kv_heads, kDim, which, kv_head, at);
  };
  constexpr int kStride = kStreams * kGroupPositions;
  int at = begin + warp * kGroupPositions;
  Group<Kv, kDim> kv;
  if (at < end) {
    kv.load_keys(first_row(0, at), lane);
    kv.load_values(first_row(1, at), lane);
  }
  const bool has_own = own_row && end == position + 1;
  prepare<Kv, kDim, kGroup, kWarps>(a, shared, row, kv_head, position, has_own);
  __syncthreads();

  for (int stream = warp; stream < kStreams; stream += kWarps) {
    WarpState<kDim, kGroup> state;
    for (at = begin + stream * kGroupPositions; at < end; at += kStride) {
      if (has_own && position - at < kGroupPositions) kv.patch(position - at, shared.key, shared.value, lane);
      int next = at + kStride;
      if (next >= end && stream + kWarps < kStreams) next = begin + (stream + kWarps) * kGroupPositions;
      float score[4], shrink[2];
      score_group<Kv, kDim>(score, kv, shared.query, lane);
      if (next < end) kv.load_keys(first_row(0, next), lane);
      soften<kDim, kGroup>(state, score, end - at, Kv::score_scale(a), shared.weights[warp], shrink, lane);
      __syncwarp();
      add_values<Kv, kDim, kGroup>(state, kv, shared.weights[warp], shrink, lane);
      if (next < end) kv.load_values(first_row(1, next), lane);
      __syncwarp();
    }
    keep_stream<Kv, kDim, kGroup>(shared, state, stream, lane);
  }
  __syncthreads();
  write_part<Kv, kDim, kGroup, kWarps>(a, shared, row, kv_head, split);
}

// Few rows: as many warps as there are streams; many rows fill the device with half of them.
template <class Kv, int kDim, int kGroup>
Status launch_group(const AttentionRows& args, KvState state, int rows, const Launch& how) {
  const dim3 blocks(kMaxSplits, static_cast<unsigned>(args.kv_heads), static_cast<unsigned>(rows));
  const bool own_row = state == KvState::kOwnRow;
  if (rows <= 2)
    return launch(attention_kernel<Kv, kDim, kGroup, 8>, {blocks, 256}, how, "attention_rows", args, own_row);
  return launch(attention_kernel<Kv, kDim, kGroup, 4>, {blocks, 128}, how, "attention_rows", args, own_row);
}

template <class Kv>
Status launch_kv(const AttentionRows& args, KvState state, int rows, const Launch& how) {
  const int group = args.heads / args.kv_heads;
  if (args.head_dim == 64)
    return group <= 4 ? launch_group<Kv, 64, 4>(args, state, rows, how)
                      : launch_group<Kv, 64, 8>(args, state, rows, how);
  if constexpr (sizeof(typename Kv::Element) == 2) {  // FP8 does without the two in between
    if (group <= 2) return launch_group<Kv, 128, 2>(args, state, rows, how);
    if (group == 5) return launch_group<Kv, 128, 5>(args, state, rows, how);
  }
  if (group <= 4) return launch_group<Kv, 128, 4>(args, state, rows, how);
  return launch_group<Kv, 128, 8>(args, state, rows, how);
}

template <class Kv>
Status append_kv(const AttentionRows& args, int rows, const Launch& how) {
  const Grid grid{dim3(static_cast<unsigned>(args.kv_heads), static_cast<unsigned>(rows)), 64};
  if (args.head_dim == 64) return launch(append_kernel<Kv, 64>, grid, how, "append_rows", args);
  return launch(append_kernel<Kv, 128>, grid, how, "append_rows", args);
}

}  // namespace

Status check_attention(const AttentionRows& a) {
  if ((a.head_dim != 64 && a.head_dim != 128) || a.kv_heads < 1 || a.heads % a.kv_heads != 0 ||
      a.heads / a.kv_heads > kMaxGroup || a.kv.page_tokens < kGroupPositions)
    return unsupported("attention of " + std::to_string(a.heads) + " query and " + std::to_string(a.kv_heads) +
                       " KV heads of " + std::to_string(a.head_dim) + " dimensions in pages of " +
                       std::to_string(a.kv.page_tokens) +
                       " positions on a CUDA device, expected 64 or 128 dimensions, up to 8 query heads a KV head and "
                       "pages of 16 or more; run the model on the CPU");
  return {};
}

Status append_rows(const AttentionRows& args, int rows, Launch how) {
  HB_TRY(check_attention(args));
  return args.kv.fp8 ? append_kv<Fp8Kv>(args, rows, how) : append_kv<Bf16Kv>(args, rows, how);
}

Status attention_rows(const AttentionRows& args, KvState state, int rows, Launch how) {
  HB_TRY(check_attention(args));
  return args.kv.fp8 ? launch_kv<Fp8Kv>(args, state, rows, how) : launch_kv<Bf16Kv>(args, state, rows, how);
}

}  // namespace halfbyte::cuda
