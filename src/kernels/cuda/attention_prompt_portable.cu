// Attention of many consecutive rows of one sequence over a paged BF16 or FP8 cache: prompts, on devices without wgmma.
//
// Moves   per thread block the keys and values up to its last position, from L2 after the first; q from the slots once.
// Shapes  head_dim 64 or 128, any number of query heads a KV head, pages of 16 or more positions.
// Order   keys in tiles of 64 positions at absolute multiples of 64, ascending, with a running maximum; on the tensor cores,
//         FP32 sums; q and the exponentials as two BF16 halves each (16 bits), K and V as stored. A tile that a row does not
//         see adds zeros, so that a row's numbers depend on its own position only, not on the chunk that it came in.
// How     FlashAttention-2: a thread block has 64 rows of (token, head of the group) of one KV head, 16 a warp; K and V tiles
//         come by cp.async into two buffers, swizzled for ldmatrix.
#include <cuda_bf16.h>

#include "base/exp32.h"
#include "formats/bf16.h"
#include "kernels/cuda/head_reader.cuh"
#include "kernels/cuda/portable.h"

namespace halfbyte::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kRows = 16 * kWarps;  // of a thread block
constexpr int kKeys = 64;           // of a tile

struct PromptAttentionArgs {
  AttentionRows rows;
  int count;   // rows of the sequence
  float* out;  // [count][heads][head_dim]
};

template <int kDim>
struct PromptShared {
  uint16_t query[2][kRows][kDim];     // high and low halves, swizzled
  uint16_t tiles[2][2][kKeys][kDim];  // buffer; keys, values; swizzled
};

// Byte offset of 16-byte chunk `chunk` of a row.
template <int kDim>
__device__ __forceinline__ uint32_t swizzled(int row, int chunk) {
  return static_cast<uint32_t>(row * kDim * 2 + ((chunk ^ (row & 7)) << 4));
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  return BF16::encode(low) | static_cast<uint32_t>(BF16::encode(high)) << 16;
}

// A tile of keys and values on its way to shared memory; positions beyond `last` become zeros. FP8 becomes BF16 here, in the
// thread's registers.
template <class Kv, int kDim>
__device__ __forceinline__ void fetch(const PromptAttentionArgs& a, uint32_t to, int kv_head, int first, int last) {
  constexpr int kChunks = kDim / 8;
  constexpr uint32_t kTileBytes = kKeys * kDim * 2;
  const size_t values = static_cast<size_t>(a.rows.kv_heads) * a.rows.kv.page_tokens * kDim;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kChunks; i += kThreads) {
    const int row = i / kChunks, chunk = i % kChunks, position = first + row;
    const bool inside = position <= last;
    const auto* from =
        cache_row<Kv>(a.rows.kv, 0, a.rows.kv_heads, kDim, 0, kv_head, inside ? position : last) + chunk * 8;
    const uint32_t at = to + swizzled<kDim>(row, chunk);
    if constexpr (sizeof(typename Kv::Element) == 2) {
      ptx::cp_async_16(at, from, inside);
      ptx::cp_async_16(at + kTileBytes, from + values, inside);
    } else {
      using Eight = typename Kv::Eight;
      const Eight none{};
      ptx::sts_v4(at, Kv::widen(inside ? *reinterpret_cast<const Eight*>(from) : none));
      ptx::sts_v4(at + kTileBytes, Kv::widen(inside ? *reinterpret_cast<const Eight*>(from + values) : none));
    }
  }
  ptx::cp_async_commit();
}

// The warp's 16 query rows into shared memory, normed and rotated, as two halves.
template <int kDim>
__device__ __forceinline__ void load_queries(const PromptAttentionArgs& a, PromptShared<kDim>& shared, int kv_head,
                                             int first_row, int warp, int lane) {
  const int group = a.rows.heads / a.rows.kv_heads, total = a.count * group;
#pragma unroll 2
  for (int i = 0; i < 16; ++i) {
    const int local = warp * 16 + i, row = min(first_row + local, total - 1);
    const int token = row / group, head = kv_head * group + row % group;
    HeadReader<kDim> reader(a.rows, head * kDim, a.rows.q_norm, true, lane);
    reader.place(a.rows, a.rows.positions[token], lane);
    const HeadVector<kDim> q = reader.read(token);
#pragma unroll
    for (int j = 0; j < HeadVector<kDim>::kPerLane; ++j) {
      const int d = lane + 32 * j;
      const uint32_t at = (swizzled<kDim>(local, d / 8) + d % 8 * 2) / 2;
      const uint16_t high = BF16::encode(q.v[j]);
      (&shared.query[0][0][0])[at] = high;
      (&shared.query[1][0][0])[at] = BF16::encode(q.v[j] - BF16::decode(high));
    }
  }
  __syncwarp();
}

// Of a lane's two rows g and g + 8.
template <int kDim>
struct PromptState {
  float most[2] = {-INFINITY, -INFINITY};
  float total[2] = {0.0f, 0.0f};  // of this lane's columns only
  float sums[kDim / 8][4] = {};
};

// sums += (high + low) b: 16 rows whose FP32 factors are two BF16 numbers each, and two blocks of 8 columns.
__device__ __forceinline__ void add_products(float (*sums)[4], const uint32_t (&high)[4], const uint32_t (&low)[4],
                                             const uint32_t (&b)[4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    ptx::mma_m16n8k16_bf16(sums[h], high[0], high[1], high[2], high[3], b[2 * h], b[2 * h + 1]);
    ptx::mma_m16n8k16_bf16(sums[h], low[0], low[1], low[2], low[3], b[2 * h], b[2 * h + 1]);
  }
}

// score = q k for 16 rows and 64 keys.
template <int kDim>
__device__ __forceinline__ void score_tile(float (&score)[kKeys / 8][4], uint32_t query, uint32_t keys, int warp,
                                           int lane) {
  constexpr uint32_t kHalfBytes = kRows * kDim * 2;
  const int q_row = warp * 16 + (lane & 15), q_chunk = lane >> 4;
  const int k_row = (lane & 7) + (lane >> 4) * 8, k_chunk = (lane >> 3) & 1;
#pragma unroll
  for (int c = 0; c < kDim / 16; ++c) {
    uint32_t high[4], low[4];
    ptx::ldmatrix_x4(high, query + swizzled<kDim>(q_row, 2 * c + q_chunk));
    ptx::ldmatrix_x4(low, query + kHalfBytes + swizzled<kDim>(q_row, 2 * c + q_chunk));
#pragma unroll
    for (int n = 0; n < kKeys / 16; ++n) {
      uint32_t k[4];
      ptx::ldmatrix_x4(k, keys + swizzled<kDim>(n * 16 + k_row, 2 * c + k_chunk));
      add_products(score + 2 * n, high, low, k);
    }
  }
}

// Scores -> exponentials; earlier sums shrink to the new maximum. positions: of the two rows.
template <int kDim>
__device__ __forceinline__ void soften_tile(PromptState<kDim>& state, float (&score)[kKeys / 8][4], float scale,
                                            int first, const int (&positions)[2], int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = state.most[r];
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& s = score[n][2 * r + e];
        s = first + 8 * n + 2 * (lane & 3) + e <= positions[r] ? s * scale : -INFINITY;
        most = fmaxf(most, s);
      }
    }
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
    const float shrink = exp32(state.most[r] - most);  // every row sees position 0, so `most` is finite
    float total = 0.0f;
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& s = score[n][2 * r + e];
        s = exp32(s - most);
        total += s;
      }
    }
    state.total[r] = state.total[r] * shrink + total;
    state.most[r] = most;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      state.sums[n][2 * r] *= shrink;
      state.sums[n][2 * r + 1] *= shrink;
    }
  }
}

template <int kDim>
__device__ __forceinline__ void add_tile(PromptState<kDim>& state, const float (&weight)[kKeys / 8][4], uint32_t values,
                                         int lane) {
  const int v_row = lane & 15, v_chunk = lane >> 4;
#pragma unroll
  for (int c = 0; c < kKeys / 16; ++c) {
    uint32_t high[4], low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float* w = &weight[2 * c + i / 2][2 * (i % 2)];
      high[i] = pack(w[0], w[1]);
      low[i] = pack(w[0] - __uint_as_float(high[i] << 16), w[1] - __uint_as_float(high[i] & 0xFFFF0000u));
    }
#pragma unroll
    for (int n = 0; n < kDim / 16; ++n) {
      uint32_t v[4];
      ptx::ldmatrix_x4_trans(v, values + swizzled<kDim>(c * 16 + v_row, 2 * n + v_chunk));
      add_products(state.sums + 2 * n, high, low, v);
    }
  }
}

template <class Kv, int kDim>
__device__ __forceinline__ void store_rows(const PromptAttentionArgs& a, PromptState<kDim>& state, int kv_head,
                                           int first_row, int lane) {
  const int group = a.rows.heads / a.rows.kv_heads;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float total = state.total[r];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    const int row = first_row + (lane >> 2) + 8 * r;
    if (row >= a.count * group) continue;
    float* out = a.out + (static_cast<size_t>(row / group) * a.rows.heads + kv_head * group + row % group) * kDim +
                 2 * (lane & 3);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n)
      *reinterpret_cast<float2*>(out + 8 * n) = make_float2(Kv::value(state.sums[n][2 * r] / total, a.rows),
                                                            Kv::value(state.sums[n][2 * r + 1] / total, a.rows));
  }
}

template <class Kv, int kDim>
__global__ void __launch_bounds__(kThreads, 2) prompt_kernel(const __grid_constant__ PromptAttentionArgs a) {
  extern __shared__ __align__(128) uint8_t bytes[];
  auto& shared = *reinterpret_cast<PromptShared<kDim>*>(bytes);
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = static_cast<int>(threadIdx.x & 31);
  const int kv_head = blockIdx.y;
  const int group = a.rows.heads / a.rows.kv_heads, total = a.count * group;
  // The last rows have most to do: they go first.
  const int first_row = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kRows;
  ptx::griddepcontrol_wait();
  const int last = a.rows.positions[(min(first_row + kRows, total) - 1) / group];
  const uint32_t query = ptx::shared_address(shared.query), tiles = ptx::shared_address(shared.tiles);
  constexpr uint32_t kTileBytes = kKeys * kDim * 2, kBufferBytes = 2 * kTileBytes;
  fetch<Kv, kDim>(a, tiles, kv_head, 0, last);
  load_queries<kDim>(a, shared, kv_head, first_row, warp, lane);
  int positions[2];
#pragma unroll
  for (int r = 0; r < 2; ++r)
    positions[r] = a.rows.positions[min(first_row + warp * 16 + (lane >> 2) + 8 * r, total - 1) / group];
  PromptState<kDim> state;
  int buffer = 0;
#pragma unroll 1
  for (int first = 0; first <= last; first += kKeys, buffer ^= 1) {
    ptx::cp_async_wait_all();
    __syncthreads();  // the tile is there, and all have done with the other buffer
    if (first + kKeys <= last) fetch<Kv, kDim>(a, tiles + (buffer ^ 1) * kBufferBytes, kv_head, first + kKeys, last);
    const uint32_t keys = tiles + buffer * kBufferBytes;
    float score[kKeys / 8][4] = {};
    score_tile<kDim>(score, query, keys, warp, lane);
    soften_tile<kDim>(state, score, Kv::score_scale(a.rows), first, positions, lane);
    add_tile<kDim>(state, score, keys + kTileBytes, lane);
  }
  store_rows<Kv, kDim>(a, state, kv_head, first_row + warp * 16, lane);
}

template <class Kv, int kDim>
Status launch_dim(const PromptAttentionArgs& args, const Launch& how) {
  static const cudaError_t kReady = cudaFuncSetAttribute(
      prompt_kernel<Kv, kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(PromptShared<kDim>));
  HB_TRY(check(kReady, "shared memory of attention_prompt_portable"));
  const int total = args.count * (args.rows.heads / args.rows.kv_heads);
  const dim3 blocks(static_cast<unsigned>((total + kRows - 1) / kRows), static_cast<unsigned>(args.rows.kv_heads));
  return launch(prompt_kernel<Kv, kDim>, {blocks, kThreads, sizeof(PromptShared<kDim>)}, how,
                "attention_prompt_portable", args);
}

template <class Kv>
Status launch_kv(const PromptAttentionArgs& args, const Launch& how) {
  return args.rows.head_dim == 64 ? launch_dim<Kv, 64>(args, how) : launch_dim<Kv, 128>(args, how);
}

}  // namespace

Status attention_prompt_portable(const AttentionRows& args, int rows, float* out, Launch how) {
  HB_TRY(check_attention(args));
  const PromptAttentionArgs all{args, rows, out};
  return args.kv.fp8 ? launch_kv<Fp8Kv>(all, how) : launch_kv<Bf16Kv>(all, how);
}

}  // namespace halfbyte::cuda
