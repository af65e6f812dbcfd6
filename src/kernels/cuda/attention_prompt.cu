// Attention of many consecutive rows of one sequence over a paged BF16 or FP8 cache: prompts.
//
// Moves   prompt_heads: the slots of q, k and v once, queries as two BF16 halves and the cache's new rows out.
//         attention_prompt: per 128 rows the keys and values up to their last position, from L2 after the first; queries
//         once; the result as FP32, or as x^ of the next linear.
// Shapes  head_dim 64 or 128, any number of query heads a KV head, pages of 16 or more positions.
// Order   keys in tiles of 128 positions at absolute multiples of 128, ascending, with a running maximum; on the tensor
//         cores, FP32 sums, 16 dimensions or positions an instruction; q and the exponentials as two BF16 halves each (16
//         bits), K and V as stored. A tile that a row does not see adds zeros, so that a row's numbers depend on its own
//         position only, not on the chunk that it came in.
// How     FlashAttention on wgmma: a thread block a multiprocessor takes item after item, each 128 rows of (token, head of
//         the group) of one KV head, 64 a warp group. Queries and keys are read from shared memory, exponentials are the
//         register operand, and one warp group's exponentials run while the other multiplies. A third warp group brings
//         keys and values, which lie in pages without a swizzle, by cp.async.
#include <cuda_bf16.h>

#include <algorithm>

#include "formats/bf16.h"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/head_reader.cuh"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/ring.cuh"
#include "kernels/cuda/step_layout.h"
#include "kernels/cuda/wgmma.cuh"

namespace halfbyte::cuda {
namespace {

constexpr int kGroups = 2;                     // warp groups that multiply
constexpr int kThreads = (1 + kGroups) * 128;  // and one that copies
constexpr int kGroupRows = 64;
constexpr int kRows = kGroups * kGroupRows;  // of an item
static_assert(kRows == kPromptItemRows);
constexpr int kKeys = 128;  // of a tile
constexpr int kStages = 2;
constexpr int kChunkBytes = 128;           // 64 dimensions of a row, the unit of the swizzle
constexpr int kTurnBarrier = 1 + kGroups;  // + group

struct PromptAttentionArgs {
  AttentionRows rows;
  int count;  // rows of the sequence
  int items, items_a_head;
  float* out;   // [count][heads][head_dim], or
  RowOutput x;  // where the next linear reads it
  int x_row;    // the first row's index there
};

template <int kDim>
struct PromptShared {
  static constexpr int kQueryHalf = kGroupRows * kDim * 2;
  static constexpr int kQueries =
      2 * kQueryHalf;  // of a warp group: high halves, low halves; each [chunk][row][128 bytes]
  static constexpr int kTile = kKeys * kDim * 2;  // of keys or values: [chunk][position][128 bytes]
  static constexpr int kKeysAt = kGroups * kQueries;
  static constexpr int kValuesAt = kKeysAt + kStages * kTile;
  static constexpr int kBarriers = kValuesAt + kStages * kTile;
  static constexpr int kBytes = 1024 + kBarriers + 64 + 32 * kStages;
};
struct Barriers {
  uint32_t base;
  __device__ __forceinline__ uint32_t queries(int group) const { return base + 8 * group; }
  // which: 0 keys, 1 values
  __device__ __forceinline__ uint32_t full(int which, int stage) const {
    return base + 16 + 8 * (which * kStages + stage);
  }
  __device__ __forceinline__ uint32_t empty(int which, int stage) const {
    return base + 16 + 16 * kStages + 8 * (which * kStages + stage);
  }
};

struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Queries of 64 rows of a KV head lie together: [kv head][64 rows][half][chunk][row][128 bytes], rows padded to whole items.
template <int kDim>
__device__ __forceinline__ size_t query_tile(const PromptAttentionArgs& a, int kv_head, int tile) {
  return (static_cast<size_t>(kv_head) * a.items_a_head * kGroups + tile) * PromptShared<kDim>::kQueries;
}

__device__ __forceinline__ uint32_t pack(float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return reinterpret_cast<const uint32_t&>(two);
}

// --- queries, keys and values of the rows: a head a thread block, four rows a warp ---

constexpr int kHeadWarps = 8;
constexpr int kHeadRows = 4;  // of a warp

// As HeadReader, over a linear with one slot; lane i has dimensions i, i + 32, ...
template <int kDim>
__device__ __forceinline__ void read_heads(const PromptAttentionArgs& a, int head, const float* norm, bool rotates,
                                           int first_row, int lane, HeadVector<kDim> (&h)[kHeadRows]) {
  constexpr int kPerLane = kDim / 32, kHalf = kPerLane / 2;
  const SlotView& qkv = a.rows.qkv;
  const int at = head * kDim + lane;
  float row_scale[kHeadRows], cos[kHeadRows][kHalf], sin[kHeadRows][kHalf];
#pragma unroll
  for (int m = 0; m < kHeadRows; ++m) {
    const int row = min(first_row + m * kHeadWarps, a.count - 1);
    row_scale[m] = qkv.x_scale != nullptr ? qkv.x_scale[row] : 1.0f;
    const int position = rotates ? a.rows.positions[row] : 0;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) h[m].v[j] = qkv.partial[static_cast<size_t>(row) * qkv.rows + at + 32 * j];
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
      const size_t angle = static_cast<size_t>(position) * (kDim / 2) + lane + 32 * j;
      cos[m][j] = rotates ? a.rows.cos[angle] : 1.0f;
      sin[m][j] = rotates ? a.rows.sin[angle] : 0.0f;
    }
  }
#pragma unroll
  for (int j = 0; j < kPerLane; ++j) {
    const float scale = qkv.scales != nullptr ? qkv.scales[at + 32 * j] : 1.0f;
#pragma unroll
    for (int m = 0; m < kHeadRows; ++m) h[m].v[j] *= scale * row_scale[m];
    if (qkv.bias != nullptr) {
      const float bias = qkv.bias[at + 32 * j];
#pragma unroll
      for (int m = 0; m < kHeadRows; ++m) h[m].v[j] += bias;
    }
  }
  if (norm != nullptr) {
    float weight[kPerLane], sum[kHeadRows] = {};
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) weight[j] = norm[lane + 32 * j];
#pragma unroll
    for (int m = 0; m < kHeadRows; ++m) {
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) sum[m] += h[m].v[j] * h[m].v[j];
    }
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) {
#pragma unroll
      for (int m = 0; m < kHeadRows; ++m) sum[m] += __shfl_xor_sync(~0u, sum[m], mask);
    }
#pragma unroll
    for (int m = 0; m < kHeadRows; ++m) {
      const float inverse = 1.0f / sqrtf(sum[m] / static_cast<float>(kDim) + a.rows.eps);
#pragma unroll
      for (int j = 0; j < kPerLane; ++j) h[m].v[j] = (h[m].v[j] * inverse) * weight[j];
    }
  }
  if (!rotates) return;
#pragma unroll
  for (int m = 0; m < kHeadRows; ++m) {
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
      const float x = h[m].v[j], y = h[m].v[j + kHalf];
      h[m].v[j] = x * cos[m][j] - y * sin[m][j];
      h[m].v[j + kHalf] = y * cos[m][j] + x * sin[m][j];
    }
  }
}

// A lane's dimensions lane + 32 j as words, two neighbouring dimensions to a lane: even lanes get those of even j, odd lanes of
// odd j. `first` and `second` hold dimensions place_of_pair and the one after.
__device__ __forceinline__ void pair_up(uint32_t even_j, uint32_t odd_j, int lane, uint32_t& first, uint32_t& second) {
  const bool odd = (lane & 1) != 0;
  const uint32_t theirs = __shfl_xor_sync(~0u, odd ? even_j : odd_j, 1);
  first = odd ? theirs : even_j;
  second = odd ? odd_j : theirs;
}
__device__ __forceinline__ int place_of_pair(int j, int lane) {
  return (lane & ~1) + 32 * (j + (lane & 1));
}

template <class Kv, int kDim>
__global__ void __launch_bounds__(kHeadWarps * 32) heads_kernel(const __grid_constant__ PromptAttentionArgs a) {
  const int lane = static_cast<int>(threadIdx.x & 31), head = static_cast<int>(blockIdx.x);
  const int first_row = static_cast<int>(blockIdx.y * (kHeadWarps * kHeadRows) + (threadIdx.x >> 5));
  const AttentionRows& r = a.rows;
  ptx::griddepcontrol_wait();
  const bool is_query = head < r.heads, is_value = head >= r.heads + r.kv_heads;
  HeadVector<kDim> h[kHeadRows];
  read_heads<kDim>(a, head, is_query ? r.q_norm : is_value ? nullptr : r.k_norm, !is_value, first_row, lane, h);
  const int group = r.heads / r.kv_heads;
#pragma unroll
  for (int m = 0; m < kHeadRows; ++m) {
    const int row = first_row + m * kHeadWarps;
    if (row >= a.count) break;
    uint32_t words[HeadVector<kDim>::kPerLane];  // high half below, low half above
#pragma unroll
    for (int j = 0; j < HeadVector<kDim>::kPerLane; ++j) {
      const float v = h[m].v[j];
      const float high = __uint_as_float(pack(v, v) << 16);
      words[j] = pack(v, v - high);
    }
    if (!is_query) {
      const int kv_head = head - r.heads - (is_value ? r.kv_heads : 0);
      auto* to = cache_row<Kv>(r.kv, 0, r.kv_heads, kDim, is_value, kv_head, r.positions[row]);
      if constexpr (sizeof(typename Kv::Element) == 1) {
        store_head<Kv>(h[m], to, is_value ? r.kv.value_scale : r.kv.key_scale, lane);
      } else {
#pragma unroll
        for (int j = 0; j < HeadVector<kDim>::kPerLane; j += 2) {
          uint32_t first, second;
          pair_up(words[j], words[j + 1], lane, first, second);
          *reinterpret_cast<uint32_t*>(to + place_of_pair(j, lane)) = __byte_perm(first, second, 0x5410);
        }
      }
      continue;
    }
    const int at = row * group + head % group;
    uint8_t* to = reinterpret_cast<uint8_t*>(r.parts) + query_tile<kDim>(a, head / group, at / kGroupRows) +
                  at % kGroupRows * kChunkBytes;
#pragma unroll
    for (int j = 0; j < HeadVector<kDim>::kPerLane; j += 2) {
      uint32_t first, second;
      pair_up(words[j], words[j + 1], lane, first, second);
      const int d = place_of_pair(j, lane);
      uint8_t* place = to + d / 64 * kGroupRows * kChunkBytes + ((d % 64 / 8) ^ (at % 8)) * 16 + d % 8 * 2;
      *reinterpret_cast<uint32_t*>(place) = __byte_perm(first, second, 0x5410);
      *reinterpret_cast<uint32_t*>(place + PromptShared<kDim>::kQueryHalf) = __byte_perm(first, second, 0x7632);
    }
  }
}

// --- the items of a thread block ---

// Items with most keys first, there and back through the thread blocks, so that each gets about the same.
struct Items {
  const PromptAttentionArgs& a;
  int round = 0;
  int kv_head = 0, tile = 0;
  __device__ __forceinline__ explicit Items(const PromptAttentionArgs& args) : a(args) {}
  __device__ __forceinline__ bool next() {
    const int blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    const int item = round * blocks + (round % 2 == 0 ? block : blocks - 1 - block);
    ++round;
    if (item >= a.items) return false;
    kv_head = item % a.rows.kv_heads;
    tile = a.items_a_head - 1 - item / a.rows.kv_heads;
    return true;
  }
};

__device__ __forceinline__ int last_position(const PromptAttentionArgs& a, int first, int tile) {
  const int group = a.rows.heads / a.rows.kv_heads, total = a.count * group;
  return first + (min((tile + 1) * kRows, total) - 1) / group;
}

// --- copies ---

// Keys or values of a tile on their way to shared memory, by 128 threads; positions beyond `last` become zeros. The barrier
// hears of each thread once its part is there. What cp.async and ordinary stores have written the readers fence for the
// tensor cores.
template <class Kv, int kDim>
__device__ __forceinline__ void fetch(const PromptAttentionArgs& a, uint32_t to, uint32_t barrier, int which,
                                      int kv_head, int first, int last, int thread) {
  constexpr int kPieces = kDim / 8;
  constexpr int kStep = 128 / kPieces;  // rows at once: whole swizzle periods
  static_assert(kStep % 8 == 0);
  const int piece = thread % kPieces, row = thread / kPieces;
  const int shift = page_shift(a.rows.kv);
  const uint32_t column = to + piece / 8 * kKeys * kChunkBytes + row * kChunkBytes + ((piece % 8) ^ (row % 8)) * 16;
  using Element = typename Kv::Element;
  const uint8_t* base = a.rows.kv.base + a.rows.kv.layer_offset + piece * 8 * sizeof(Element);
  const int slots = (which * a.rows.kv_heads + kv_head) << shift, mask = a.rows.kv.page_tokens - 1;
#pragma unroll 8
  for (int i = 0; i < kKeys / kStep; ++i) {
    const int position = first + row + i * kStep;
    const bool inside = position <= last;
    const int from_position = inside ? position : last;
    const int page = a.rows.kv.tables[from_position >> shift];
    const uint8_t* from =
        base + static_cast<size_t>(page) * a.rows.kv.page_stride +
        static_cast<uint32_t>(slots + (from_position & mask)) * static_cast<uint32_t>(kDim * sizeof(Element));
    const uint32_t at = column + i * kStep * kChunkBytes;
    if constexpr (sizeof(Element) == 2) {
      ptx::cp_async_16(at, from, inside);
    } else {
      using Eight = typename Kv::Eight;
      ptx::sts_v4(at, Kv::widen(inside ? *reinterpret_cast<const Eight*>(from) : Eight{}));
    }
  }
  if constexpr (sizeof(Element) == 2) {
    ptx::cp_async_arrive(barrier);
  } else {
    ptx::mbarrier_arrive(barrier);
  }
}

template <class Kv, int kDim>
__device__ __forceinline__ void produce(const PromptAttentionArgs& a, uint32_t shared, const Barriers& barriers,
                                        int thread) {
  using Shared = PromptShared<kDim>;
  const int first_position = a.rows.positions[0];
  RingPlace place;
  int sent = 0;
  for (Items items(a); items.next();) {
    const int last = last_position(a, first_position, items.tile);
#pragma unroll 1
    for (int first = 0; first <= last; first += kKeys) {
#pragma unroll 1
      for (int which = 0; which < 2; ++which) {
        if (sent >= kStages) ptx::mbarrier_wait(barriers.empty(which, place.stage), place.parity ^ 1);
        fetch<Kv, kDim>(a, shared + (which == 0 ? Shared::kKeysAt : Shared::kValuesAt) + place.stage * Shared::kTile,
                        barriers.full(which, place.stage), which, items.kv_head, first, last, thread);
      }
      sent = min(sent + 1, kStages);
      place.advance();
    }
  }
}

// --- products ---

// Of a lane's two rows g and g + 8.
template <int kDim>
struct PromptState {
  float most[2] = {-INFINITY, -INFINITY};
  float total[2] = {0.0f, 0.0f};  // of this lane's columns only
  float sums[kDim / 2] = {};      // as wgmma has them
};

// score = q k for 64 rows and 128 keys, begun.
template <int kDim>
__device__ __forceinline__ void score_tile(float (&score)[kKeys / 2], uint32_t query, uint32_t keys) {
  using Shared = PromptShared<kDim>;
  ptx::wgmma_fence();
#pragma unroll
  for (int c = 0; c < kDim / 16; ++c) {
    const uint32_t q = query + c / 4 * kGroupRows * kChunkBytes + c % 4 * 32;
    const uint64_t k = ptx::wgmma_swizzled_rows(keys + c / 4 * kKeys * kChunkBytes + c % 4 * 32);
    ptx::wgmma_m64k16_shared(score, ptx::wgmma_swizzled_rows(q), k, c > 0);
    ptx::wgmma_m64k16_shared(score, ptx::wgmma_swizzled_rows(q + Shared::kQueryHalf), k, 1);
  }
  ptx::wgmma_commit();
}

// Scores -> exponentials; returns what earlier sums of the two rows shrink by to the new maximum. scale: of scores, times
// log2 e. positions: of the two rows.
template <int kDim>
__device__ __forceinline__ float2 soften_tile(PromptState<kDim>& state, float (&score)[kKeys / 2], float scale,
                                              int first, const int (&positions)[2], int lane) {
  if (first + kKeys - 1 > min(positions[0], positions[1])) {
#pragma unroll
    for (int i = 0; i < kKeys / 2; ++i) {
      const int key = first + i / 4 * 8 + 2 * (lane & 3) + i % 2;
      if (key > positions[i / 2 % 2]) score[i] = -INFINITY;
    }
  }
  float shrinks[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = state.most[r];
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) most = fmaxf(most, fmaxf(score[4 * i + 2 * r], score[4 * i + 2 * r + 1]));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
    most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));  // every row sees position 0, so it is finite
    const float shift = -most * scale;
    shrinks[r] = ptx::ex2_approx_ftz((state.most[r] - most) * scale);  // exactly 1 where a tile changes nothing
    float total = 0.0f;
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& s = score[4 * i + 2 * r + e];
        s = ptx::ex2_approx_ftz(fmaf(s, scale, shift));
        total += s;
      }
    }
    state.total[r] = state.total[r] * shrinks[r] + total;
    state.most[r] = most;
  }
  return make_float2(shrinks[0], shrinks[1]);
}

template <int kDim>
__device__ __forceinline__ void shrink_sums(PromptState<kDim>& state, float2 by) {
  if (__all_sync(~0u, by.x == 1.0f && by.y == 1.0f)) return;
#pragma unroll
  for (int i = 0; i < kDim / 8; ++i) {
    state.sums[4 * i] *= by.x;
    state.sums[4 * i + 1] *= by.x;
    state.sums[4 * i + 2] *= by.y;
    state.sums[4 * i + 3] *= by.y;
  }
}

// The exponentials of 16 keys as the register operand: registers of rows g, g + 8, g, g + 8; halves.
struct WeightHalves {
  uint32_t high[kKeys / 16][4], low[kKeys / 16][4];
  __device__ __forceinline__ void set(const float (&weight)[kKeys / 2]) {
#pragma unroll
    for (int c = 0; c < kKeys / 16; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float w0 = weight[8 * c + 2 * i], w1 = weight[8 * c + 2 * i + 1];
        high[c][i] = pack(w0, w1);
        low[c][i] = pack(w0 - __uint_as_float(high[c][i] << 16), w1 - __uint_as_float(high[c][i] & 0xFFFF0000u));
      }
    }
  }
};

// sums += weights v, begun.
template <int kDim>
__device__ __forceinline__ void add_tile(PromptState<kDim>& state, const WeightHalves& weights, uint32_t values) {
  ptx::wgmma_fence();
#pragma unroll
  for (int c = 0; c < kKeys / 16; ++c) {
    const uint64_t v = ptx::wgmma_swizzled_columns(values + c * 16 * kChunkBytes, kKeys * kChunkBytes);
    ptx::wgmma_m64k16_columns(state.sums, weights.high[c], v);
    ptx::wgmma_m64k16_columns(state.sums, weights.low[c], v);
  }
  ptx::wgmma_commit();
}

template <class Kv, int kDim>
__device__ __forceinline__ void store_rows(const PromptAttentionArgs& a, PromptState<kDim>& state, int kv_head,
                                           int first_row, int lane) {
  const int group = a.rows.heads / a.rows.kv_heads, t = lane & 3;
  const float power = a.x.mode == RowMode::kBf16Rows ? 1.0f : power_of_two(kXExponent);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float total = state.total[r];
    total += __shfl_xor_sync(~0u, total, 1);
    total += __shfl_xor_sync(~0u, total, 2);
    const int row = first_row + (lane >> 2) + 8 * r;
    if (row >= a.count * group) continue;
    const int token = row / group, head = kv_head * group + row % group;
    float2 v[kDim / 8];
#pragma unroll
    for (int i = 0; i < kDim / 8; ++i)
      v[i] = make_float2(Kv::value(state.sums[4 * i + 2 * r] / total, a.rows),
                         Kv::value(state.sums[4 * i + 2 * r + 1] / total, a.rows));
    if (a.x.x != nullptr) {
      auto* x = static_cast<uint8_t*>(a.x.x);
      const int at = a.x_row + token;
      // Two chunks of 8 dimensions at a time: neighbouring lanes write whole sectors of 32 bytes.
#pragma unroll
      for (int i = 0; i < kDim / 8; i += 2) {
        uint32_t words[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) words[e] = pack(BF16::round(v[i + e].x) * power, BF16::round(v[i + e].y) * power);
        uint2 pair;
        const int from = (lane & ~3) + 2 * (t & 1);
        const unsigned quad = 0xFu << (lane & ~3);
        const uint32_t first0 = __shfl_sync(quad, words[0], from), first1 = __shfl_sync(quad, words[1], from);
        const uint32_t second0 = __shfl_sync(quad, words[0], from + 1), second1 = __shfl_sync(quad, words[1], from + 1);
        pair.x = t < 2 ? first0 : first1;
        pair.y = t < 2 ? second0 : second1;
        *reinterpret_cast<uint2*>(x + prompt_offset(a.x.prompt_rows, at, head * kDim + 8 * (i + t / 2)) + 8 * (t & 1)) =
            pair;
      }
      if (head == 0 && t == 0) a.x.x_scale[at] = 1.0f;
    } else {
      float* out = a.out + (static_cast<size_t>(token) * a.rows.heads + head) * kDim + 2 * t;
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) *reinterpret_cast<float2*>(out + 8 * i) = v[i];
    }
  }
}

// One thread: the queries of a warp group's part of an item.
template <int kDim>
__device__ __forceinline__ void ask_for_queries(const PromptAttentionArgs& a, const Items& items, int group,
                                                uint32_t to, uint32_t barrier) {
  constexpr int kBytes = PromptShared<kDim>::kQueries;
  ptx::mbarrier_arrive_expect_tx(barrier, kBytes);
  ptx::cp_async_bulk(
      to,
      reinterpret_cast<const uint8_t*>(a.rows.parts) + query_tile<kDim>(a, items.kv_head, items.tile * kGroups + group),
      kBytes, barrier);
}

template <class Kv, int kDim>
__device__ __forceinline__ void consume(const PromptAttentionArgs& a, uint32_t shared, const Barriers& barriers,
                                        int group, int warp, int lane) {
  using Shared = PromptShared<kDim>;
  const int heads = a.rows.heads / a.rows.kv_heads, total = a.count * heads;
  const int first_position = a.rows.positions[0];
  const uint32_t query = shared + group * Shared::kQueries;
  const bool first_thread = warp == 0 && lane == 0;
  Items items(a), ahead(a);
  if (ahead.next() && first_thread) ask_for_queries<kDim>(a, ahead, group, query, barriers.queries(group));
  if (group == 1) ptx::bar_arrive(kTurnBarrier, kGroups * 128);  // the first turn is group 0's
  const float scale = Kv::score_scale(a.rows) * kLog2e;
  RingPlace key_place, value_place;
  uint32_t parity = 0;
  while (items.next()) {
    const int last = last_position(a, first_position, items.tile);
    const int first_row = items.tile * kRows + group * kGroupRows + warp * 16;
    int positions[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) positions[r] = first_position + min(first_row + (lane >> 2) + 8 * r, total - 1) / heads;
    PromptState<kDim> state;
    float score[kKeys / 2];
    WeightHalves weights;
    // The warp groups hand the tensor cores to each other: one multiplies while the other makes exponentials.
    const auto take_turn = [&] { ptx::bar_sync(kTurnBarrier + group, kGroups * 128); };
    const auto give_turn = [&] { ptx::bar_arrive(kTurnBarrier + (group ^ 1), kGroups * 128); };
    const auto scores_begin = [&] {
      ptx::mbarrier_wait(barriers.full(0, key_place.stage), key_place.parity);
      ptx::fence_async_shared();
      score_tile<kDim>(score, query, shared + Shared::kKeysAt + key_place.stage * Shared::kTile);
    };
    const auto scores_done = [&] {
      ptx::hold(score);
      arrive_for_warp(barriers.empty(0, key_place.stage), lane);
      key_place.advance();
    };
    const auto sums_begin = [&] {
      ptx::mbarrier_wait(barriers.full(1, value_place.stage), value_place.parity);
      ptx::fence_async_shared();
      add_tile<kDim>(state, weights, shared + Shared::kValuesAt + value_place.stage * Shared::kTile);
    };
    const auto sums_done = [&] {
      ptx::wgmma_wait<0>();
      ptx::hold(state.sums);
      arrive_for_warp(barriers.empty(1, value_place.stage), lane);
      value_place.advance();
    };
    ptx::mbarrier_wait(barriers.queries(group), parity);
    parity ^= 1;
    take_turn();
    scores_begin();
    give_turn();
    ptx::wgmma_wait<0>();
    scores_done();
    soften_tile<kDim>(state, score, scale, 0, positions, lane);
    weights.set(score);
#pragma unroll 1
    for (int first = kKeys; first <= last; first += kKeys) {
      take_turn();
      scores_begin();
      sums_begin();  // of the tile before: the tensor cores have it while this tile's exponentials are made
      give_turn();
      ptx::wgmma_wait<1>();
      scores_done();
      const float2 shrink = soften_tile<kDim>(state, score, scale, first, positions, lane);
      sums_done();
      shrink_sums<kDim>(state, shrink);
      weights.set(score);
    }
    ptx::bar_sync(1 + group, 128);  // queries have been read
    if (ahead.next() && first_thread) ask_for_queries<kDim>(a, ahead, group, query, barriers.queries(group));
    take_turn();
    sums_begin();
    give_turn();
    sums_done();
    store_rows<Kv, kDim>(a, state, items.kv_head, first_row, lane);
  }
}

template <class Kv, int kDim>
__global__ void __launch_bounds__(kThreads, 1) prompt_kernel(const __grid_constant__ PromptAttentionArgs a) {
  HB_FROM_SM90();
  extern __shared__ uint8_t bytes[];
  const uint32_t shared = (ptx::shared_address(bytes) + 1023) / 1024 * 1024;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x >> 5), 0), lane = static_cast<int>(threadIdx.x & 31);
  const Barriers barriers{shared + PromptShared<kDim>::kBarriers};
  if (threadIdx.x == 0) {
    for (int g = 0; g < kGroups; ++g) ptx::mbarrier_init(barriers.queries(g), 1);
    for (int which = 0; which < 2; ++which) {
      for (int s = 0; s < kStages; ++s) {
        ptx::mbarrier_init(barriers.full(which, s), 128);
        ptx::mbarrier_init(barriers.empty(which, s), kGroups * 4 * kWarpArrivals);
      }
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_wait();
  if (warp < 4) {
    ptx::setmaxnreg_dec<40>();
    produce<Kv, kDim>(a, shared, barriers, static_cast<int>(threadIdx.x));
  } else {
    ptx::setmaxnreg_inc<232>();
    consume<Kv, kDim>(a, shared, barriers, (warp - 4) / 4, warp % 4, lane);
  }
}

PromptAttentionArgs attention_args(const AttentionRows& rows, int count) {
  PromptAttentionArgs a{};
  a.rows = rows;
  a.count = count;
  a.items_a_head = (count * (rows.heads / rows.kv_heads) + kRows - 1) / kRows;
  a.items = a.items_a_head * rows.kv_heads;
  return a;
}

template <class Kv, int kDim>
Status launch_attention(const PromptAttentionArgs& args, const Launch& how) {
  constexpr int kBytes = PromptShared<kDim>::kBytes;
  static const cudaError_t kReady =
      cudaFuncSetAttribute(prompt_kernel<Kv, kDim>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  static const int kMultiprocessors = [] {
    int device = 0, count = 0;
    if (cudaGetDevice(&device) != cudaSuccess ||
        cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
      return 1;
    return count;
  }();
  HB_TRY(check(kReady, "shared memory of attention_prompt"));
  const dim3 blocks(static_cast<unsigned>(std::min(args.items, kMultiprocessors)));
  return launch(prompt_kernel<Kv, kDim>, {blocks, kThreads, static_cast<size_t>(kBytes)}, how, "attention_prompt",
                args);
}

template <class Kv, int kDim>
Status launch_heads(const PromptAttentionArgs& args, bool append, const Launch& how) {
  const int heads = args.rows.heads + (append ? 2 * args.rows.kv_heads : 0);
  constexpr int kBlockRows = kHeadWarps * kHeadRows;
  const dim3 blocks(static_cast<unsigned>(heads), static_cast<unsigned>((args.count + kBlockRows - 1) / kBlockRows));
  return launch(heads_kernel<Kv, kDim>, {blocks, kHeadWarps * 32}, how, "prompt_heads", args);
}

}  // namespace

Status prompt_heads(const AttentionRows& rows, int count, bool append, Launch how) {
  HB_TRY(check_attention(rows));
  if (!active_kernels().wgmma) return append ? append_rows(rows, count, how) : Status();
  const PromptAttentionArgs args = attention_args(rows, count);
  if (rows.head_dim == 64)
    return rows.kv.fp8 ? launch_heads<Fp8Kv, 64>(args, append, how) : launch_heads<Bf16Kv, 64>(args, append, how);
  return rows.kv.fp8 ? launch_heads<Fp8Kv, 128>(args, append, how) : launch_heads<Bf16Kv, 128>(args, append, how);
}

bool fuses_prompt_rounding(const AttentionRows& rows, RowMode mode) {
  return active_kernels().wgmma && (mode == RowMode::kA16 || mode == RowMode::kBf16Rows) &&
         rows.heads * rows.head_dim % kStepK == 0;
}

Status attention_prompt(const AttentionRows& rows, int count, float* out, const RowOutput* x, int x_row, Launch how) {
  HB_TRY(check_attention(rows));
  if (!active_kernels().wgmma) return attention_prompt_portable(rows, count, out, how);
  PromptAttentionArgs args = attention_args(rows, count);
  args.out = out;
  if (x != nullptr) args.x = *x;
  args.x_row = x_row;
  if (rows.head_dim == 64)
    return rows.kv.fp8 ? launch_attention<Fp8Kv, 64>(args, how) : launch_attention<Bf16Kv, 64>(args, how);
  return rows.kv.fp8 ? launch_attention<Fp8Kv, 128>(args, how) : launch_attention<Bf16Kv, 128>(args, how);
}

}  // namespace halfbyte::cuda
