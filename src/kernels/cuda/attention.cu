// Attention of single query rows over a paged BF16 or FP8 cache, cut into parts at absolute positions.
//
// A thread block has a part, or a few one after the other, of one KV head of one row: it adds the slots of q (and k, v),
// norms and rotates them, appends the row's key and value, and leaves sums that merge_rows divides. Keys, and values
// transposed, go from the cache's rows in registers to the tensor cores as the 16-row operand, with the group's query heads
// as columns; queries and exponentials are two halves of 16 bits each, side by side in the 8 columns for up to 4 heads.
//
// Moves   2 x length x head_dim x 2 bytes (FP8: 1) a KV head and row, once; slots of q for every part from L2.
// Shapes  head_dim 64 or 128, up to 8 query heads a KV head, pages of 16 or more positions.
// Order   parts of split_span(length) positions; in a part stream i of 8 has the 16-position groups g with g mod 8 = i,
//         ascending, over a maximum that is raised when a score is more than 4 above it; the streams ascending; the parts
//         ascending (merge_rows). It depends on the row's own length only.
#include <cuda_bf16.h>

#include "base/exp32.h"
#include "formats/bf16.h"
#include "kernels/cuda/head_reader.cuh"

namespace halfbyte::cuda {
namespace {
constexpr int kStreams = 8;          // a part's 16-position groups go to these in turn
constexpr int kGroupPositions = 16;  // positions that a warp takes at once
constexpr int kHeadColumns = 8;      // columns of the MMA
constexpr float kSlack = 4.0f;       // what a score may lie above the maximum that it is taken over

// A thread block by how many of them a multiprocessor is to hold. A row's 128 come as the linear ahead ends, here earlier
// and there later: where a multiprocessor has room for two, some may get two and others none. So one row's take more than
// half of the registers, a kernel that needs fewer with a warp that does nothing; and no more than the linear behind it
// (M = 1: 30,720) leaves free, or that one cannot fill its rings meanwhile.
template <class Kv, int kDim, int kBlocks>
struct Residency {
  static constexpr int kWarps = kBlocks == 4 ? 4 : 8;  // that take streams
  static constexpr bool kWide = kDim * sizeof(typename Kv::Element) == 256;
  static constexpr int kThreads = (kBlocks == 1 && !kWide ? kWarps + 1 : kWarps) * 32;
  static constexpr int kRegisters = kBlocks != 1 ? 128 : kWide ? 136 : 120;  // a thread
};

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

// 16 positions of keys and values in a warp's registers, as they lie in the cache.
// Keys: lane (g, t) has of the rows g and g + 8 pieces of 16 bytes, 4 neighbouring lanes t one after the other. Values: of
// the rows 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 an eighth, 8 neighbours g one after the other.
template <class Kv, int kDim>
struct Group {
  using Element = typename Kv::Element;
  static constexpr int kKeyElements = 16 / static_cast<int>(sizeof(Element));
  static constexpr int kChunks = kDim / (4 * kKeyElements);
  static constexpr int kSteps = kKeyElements / 4;  // k16 steps of the MMA in a chunk
  static constexpr int kValueWords = kDim * static_cast<int>(sizeof(Element)) == 64 ? 2 : 4;
  static constexpr int kValueElements = kValueWords * 4 / static_cast<int>(sizeof(Element));
  static constexpr int kPieces = kDim / 8 / kValueElements;
  uint32_t keys[2][kChunks][4];
  uint32_t values[4][kPieces][kValueWords];

  static __device__ __forceinline__ int value_row(int i, int lane) { return 2 * (lane & 3) + (i & 1) + 8 * (i >> 1); }
  static __device__ __forceinline__ int key_place(int c, int lane) { return (c * 4 + (lane & 3)) * kKeyElements; }
  static __device__ __forceinline__ int value_place(int p, int lane) { return (p * 8 + (lane >> 2)) * kValueElements; }
  // The first of two neighbouring dimensions in `tile` of a lane's sums.
  static __device__ __forceinline__ int tile_place(int tile, int lane) {
    return value_place(2 * tile / kValueElements, lane) + 2 * tile % kValueElements;
  }

  __device__ __forceinline__ void load_keys(const Element* first, int lane) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int c = 0; c < kChunks; ++c)
        ptx::ld_once(keys[r][c], first + ((lane >> 2) + 8 * r) * kDim + key_place(c, lane));
    }
  }
  __device__ __forceinline__ void load_values(const Element* first, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int p = 0; p < kPieces; ++p)
        ptx::ld_once(values[i][p], first + value_row(i, lane) * kDim + value_place(p, lane));
    }
  }
  // The position `own` of the group takes its key and value from shared memory.
  __device__ __forceinline__ void patch(int own, const Element* key, const Element* value, int lane) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if ((lane >> 2) + 8 * r != own) continue;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) copy(keys[r][c], key + key_place(c, lane));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (value_row(i, lane) != own) continue;
#pragma unroll
      for (int p = 0; p < kPieces; ++p) copy(values[i][p], value + value_place(p, lane));
    }
  }

 private:
  template <int kWords>
  static __device__ __forceinline__ void copy(uint32_t (&to)[kWords], const Element* from) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) to[i] = reinterpret_cast<const uint32_t*>(from)[i];
  }
};

// kSplit: groups of up to 4 heads, whose queries' high halves are the MMA's columns 0 to 3 and low halves 4 to 7, and so
// the exponentials'; larger ones take two MMAs.
template <class Kv, int kDim, bool kSplit>
struct AttentionShared {
  static constexpr int kHalves = kSplit ? 1 : 2;
  static constexpr int kHeads = kSplit ? kHeadColumns / 2 : kHeadColumns;
  // Between the columns, so that a warp's reads of 16 bytes meet no bank twice.
  static constexpr int kPad = sizeof(typename Kv::Element) == 2 ? 32 : 8;
  alignas(16) uint16_t query[kHalves][kHeadColumns][kDim + kPad];
  alignas(16) typename Kv::Element key[kDim];  // of the row itself
  alignas(16) typename Kv::Element value[kDim];
  float stats[kStreams][kHeads][2];
  alignas(16) float sums[kStreams][kHeads][kDim];
};

// Running state of a warp: for the heads of columns 2 t and 2 t + 1 of lane (g, t) the maximum, and the sum over the lane's
// own positions; sums of values by tiles of 16 dimensions, in the same columns.
template <int kDim>
struct WarpState {
  float most[2] = {-INFINITY, -INFINITY};
  float total[2] = {0.0f, 0.0f};
  float sums[kDim / 16][4] = {};
};

template <class Kv, int kDim, bool kSplit>
__device__ __forceinline__ void score_group(float (&score)[4], const Group<Kv, kDim>& kv,
                                            const AttentionShared<Kv, kDim, kSplit>& shared, int lane) {
  using G = Group<Kv, kDim>;
  constexpr int kHalves = AttentionShared<Kv, kDim, kSplit>::kHalves;
  float sums[kHalves][2][4] = {};  // by half of q and half of the k16 steps: short chains of dependent MMAs
#pragma unroll
  for (int c = 0; c < G::kChunks; ++c) {
#pragma unroll
    for (int s = 0; s < G::kSteps; s += 2) {
      uint32_t a[2][4];
      Kv::key_operand(a[0], kv.keys[0][c], kv.keys[1][c], s);
      Kv::key_operand(a[1], kv.keys[0][c], kv.keys[1][c], s + 1);
#pragma unroll
      for (int half = 0; half < kHalves; ++half) {
        const uint4 q = *reinterpret_cast<const uint4*>(&shared.query[half][lane >> 2][G::key_place(c, lane) + 4 * s]);
        Kv::multiply(sums[half][0], a[0], q.x, q.y);
        Kv::multiply(sums[half][1], a[1], q.z, q.w);
      }
    }
  }
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float sum = sums[0][0][e] + sums[0][1][e];
    if constexpr (kSplit) {
      score[e] = sum + __shfl_xor_sync(~0u, sum, 2);
    } else {
      score[e] = sum + (sums[1][0][e] + sums[1][1][e]);
    }
  }
}

// Across the lanes g of one t.
template <class Join>
__device__ __forceinline__ float across_positions(float v, Join join) {
  v = join(v, __shfl_xor_sync(~0u, v, 4));
  v = join(v, __shfl_xor_sync(~0u, v, 8));
  return join(v, __shfl_xor_sync(~0u, v, 16));
}

// The maximum and what was added up under the one before.
template <int kDim>
__device__ __forceinline__ void raise_most(WarpState<kDim>& state, const float (&score)[4]) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float most = fmaxf(
        state.most[h], across_positions(fmaxf(score[h], score[2 + h]), [](float a, float b) { return fmaxf(a, b); }));
    const float shrink = exp32(state.most[h] - most);
    state.most[h] = most;
    state.total[h] *= shrink;
#pragma unroll
    for (int tile = 0; tile < kDim / 16; ++tile) {
      state.sums[tile][h] *= shrink;
      state.sums[tile][2 + h] *= shrink;
    }
  }
}

// Scores -> exponentials over a maximum that is raised only when a score lies kSlack above it.
template <int kDim>
__device__ __forceinline__ void soften(WarpState<kDim>& state, float (&score)[4], int valid, float scale, int lane) {
  const int g = lane >> 2;
  bool above = false;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    score[e] = g + e / 2 * 8 < valid ? score[e] * scale : -INFINITY;
    above |= score[e] > state.most[e % 2] + kSlack;
  }
  if (__any_sync(~0u, above)) raise_most(state, score);
#pragma unroll
  for (int e = 0; e < 4; ++e) score[e] = exp32(score[e] - state.most[e % 2]);
#pragma unroll
  for (int h = 0; h < 2; ++h) state.total[h] += score[h] + score[2 + h];
}

// Exponentials of a lane's positions g and g + 8 -> the MMA's 16 x 8 operand: high halves, and low ones.
template <class Kv, bool kSplit>
__device__ __forceinline__ void pack_weights(uint32_t (&packed)[2][2], const float (&weight)[4], int lane) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float w0 = weight[2 * r] * Kv::kWeightPower, w1 = weight[2 * r + 1] * Kv::kWeightPower;
    const uint32_t high = Kv::pack(w0, w1);
    const bool is_high = kSplit && (lane & 2) == 0;
    const float2 taken = Kv::unpack(is_high ? 0u : high);
    const uint32_t rest = Kv::pack(w0 - taken.x, w1 - taken.y);
    packed[0][r] = ptx::movmatrix_trans(kSplit ? rest : high);
    if constexpr (!kSplit) packed[1][r] = ptx::movmatrix_trans(rest);
  }
}

template <class Kv, int kDim, bool kSplit>
__device__ __forceinline__ void add_values(WarpState<kDim>& state, const Group<Kv, kDim>& kv, const float (&weight)[4],
                                           int lane) {
  using G = Group<Kv, kDim>;
  uint32_t packed[2][2];
  pack_weights<Kv, kSplit>(packed, weight, lane);
#pragma unroll
  for (int p = 0; p < G::kPieces; ++p) {
#pragma unroll
    for (int i = 0; i < G::kValueWords; ++i) {
#pragma unroll
      for (int j = 0; j < Kv::kTilesPerWord; ++j) {
        uint32_t a[4];
        Kv::value_operand(a, kv.values[0][p][i], kv.values[1][p][i], kv.values[2][p][i], kv.values[3][p][i], j);
        float(&sums)[4] = state.sums[(p * G::kValueWords + i) * Kv::kTilesPerWord + j];
        Kv::multiply(sums, a, packed[0][0], packed[0][1]);
        if constexpr (!kSplit) Kv::multiply(sums, a, packed[1][0], packed[1][1]);
      }
    }
  }
}

// A head of the group's queries into shared memory, as two halves.
template <class Kv, int kDim, bool kSplit>
__device__ __forceinline__ void store_query(AttentionShared<Kv, kDim, kSplit>& shared, int head,
                                            const HeadVector<kDim>& h, int lane) {
  uint16_t* high = shared.query[0][head];
  uint16_t* low = kSplit ? shared.query[0][head + kHeadColumns / 2] : shared.query[kSplit ? 0 : 1][head];
#pragma unroll
  for (int i = 0; i < HeadVector<kDim>::kPerLane; ++i) {
    const float v = h.v[i] * Kv::kQueryPower;
    const uint32_t top = Kv::pack(v, 0.0f);
    high[lane + 32 * i] = static_cast<uint16_t>(top);
    low[lane + 32 * i] = static_cast<uint16_t>(Kv::pack(v - Kv::unpack(top).x, 0.0f));
  }
}

// What a thread block prepares in shared memory: with `own` the row's key and value, and the group's queries, a task each.
// Made before the wait for the kernel ahead: a warp's first task reads what never changes.
template <class Kv, int kDim, bool kSplit, int kWarps>
class Preparation {
 public:
  using Shared = AttentionShared<Kv, kDim, kSplit>;

  __device__ __forceinline__ Preparation(const AttentionRows& a, int row, int kv_head, int position, bool own, int warp,
                                         int lane)
      : a_(a),
        row_(row),
        kv_head_(kv_head),
        position_(position),
        first_head_(own ? 2 : 0),
        warp_(warp),
        lane_(lane),
        first_(reader(warp)) {}

  __device__ __forceinline__ void run(Shared& shared) const {
    const int group = a_.heads / a_.kv_heads, tasks = first_head_ + group;
    for (int head = group + warp_; head < Shared::kHeads; head += kWarps)
      store_query<Kv, kDim, kSplit>(shared, head, HeadVector<kDim>{}, lane_);  // heads that are not there
    ptx::griddepcontrol_wait();
    if (warp_ < tasks) finish(shared, warp_, first_);
    for (int task = warp_ + kWarps; task < tasks; task += kWarps) finish(shared, task, reader(task));
  }

 private:
  __device__ __forceinline__ HeadReader<kDim> reader(int task) const {
    if (task < first_head_) return kv_reader<kDim>(a_, task == 1, kv_head_, position_, lane_);
    const int group = a_.heads / a_.kv_heads, head = kv_head_ * group + min(task - first_head_, group - 1);
    return HeadReader<kDim>(a_, head * kDim, a_.q_norm, true, position_, lane_);
  }
  __device__ __forceinline__ void finish(Shared& shared, int task, const HeadReader<kDim>& from) const {
    const HeadVector<kDim> h = from.read(row_);
    if (task >= first_head_) return store_query<Kv, kDim, kSplit>(shared, task - first_head_, h, lane_);
    const bool is_value = task == 1;
    const float scale = cache_scale(a_.kv, is_value);
    store_head<Kv>(h, is_value ? shared.value : shared.key, scale, lane_);
    store_head<Kv>(h, cache_row<Kv>(a_.kv, row_, a_.kv_heads, kDim, is_value, kv_head_, position_), scale, lane_);
  }

  const AttentionRows& a_;
  int row_, kv_head_, position_, first_head_, warp_, lane_;
  HeadReader<kDim> first_;
};

// A stream's sums and statistics into shared memory.
template <class Kv, int kDim, bool kSplit>
__device__ __forceinline__ void keep_stream(AttentionShared<Kv, kDim, kSplit>& shared, const WarpState<kDim>& state,
                                            int stream, int lane) {
  using G = Group<Kv, kDim>;
  const int head = 2 * (lane & (kSplit ? 1 : 3));
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float total = across_positions(state.total[h], [](float a, float b) { return a + b; });
    if (lane < (kSplit ? 2 : 4))
      *reinterpret_cast<float2*>(shared.stats[stream][head + h]) = make_float2(state.most[h], total);
  }
  const auto store = [&](int tile, const float(&v)[4]) {
    const int d = G::tile_place(tile, lane);
    *reinterpret_cast<float2*>(&shared.sums[stream][head][d]) = make_float2(v[0], v[2]);
    *reinterpret_cast<float2*>(&shared.sums[stream][head + 1][d]) = make_float2(v[1], v[3]);
  };
  if constexpr (kSplit) {  // high and low halves' sums meet: one of the two lanes has the even tiles, the other the odd
    const bool odd = (lane & 2) != 0;
#pragma unroll
    for (int tile = 0; tile < kDim / 16; tile += 2) {
      float v[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float mine = odd ? state.sums[tile + 1][e] : state.sums[tile][e];
        v[e] = mine + __shfl_xor_sync(~0u, odd ? state.sums[tile][e] : state.sums[tile + 1][e], 2);
      }
      store(tile + (odd ? 1 : 0), v);
    }
  } else {
#pragma unroll
    for (int tile = 0; tile < kDim / 16; ++tile) store(tile, state.sums[tile]);
  }
}

// Writes the part: the streams' sums and statistics, joined in order.
template <class Kv, int kDim, bool kSplit, int kWarps>
__device__ __forceinline__ void write_part(const AttentionRows& a, const AttentionShared<Kv, kDim, kSplit>& shared,
                                           int streams, int row, int kv_head, int part) {
  const int group = a.heads / a.kv_heads;
  for (int i = static_cast<int>(threadIdx.x); i < group * kDim / 4; i += kWarps * 32) {
    const int h = i / (kDim / 4), d = i % (kDim / 4) * 4;
    float most = shared.stats[0][h][0];
    for (int s = 1; s < streams; ++s) most = fmaxf(most, shared.stats[s][h][0]);
    float sum[4] = {}, total = 0.0f;
#pragma unroll 4
    for (int s = 0; s < streams; ++s) {
      const float factor = exp32(shared.stats[s][h][0] - most);
      const float4 v = *reinterpret_cast<const float4*>(&shared.sums[s][h][d]);
      sum[0] += v.x * factor;
      sum[1] += v.y * factor;
      sum[2] += v.z * factor;
      sum[3] += v.w * factor;
      total += shared.stats[s][h][1] * factor;
    }
#pragma unroll
    for (float& v : sum) v = Kv::value(v * (1.0f / Kv::kWeightPower), a);
    const size_t at = (static_cast<size_t>(row) * a.heads + kv_head * group + h) * kMaxSplits + part;
    *reinterpret_cast<float4*>(a.parts + at * kDim + d) = make_float4(sum[0], sum[1], sum[2], sum[3]);
    if (d == 0) *reinterpret_cast<float2*>(a.stats + at * 2) = make_float2(most, total);
  }
}

// The groups of 16 positions that a warp takes, one after the other: of each part of the thread block its streams, of each
// stream its groups. One ahead of the sums, and of its page's number.
template <class Kv, int kDim, int kWarps>
class Walk {
 public:
  using Element = typename Kv::Element;

  __device__ __forceinline__ Walk(const AttentionRows& a, int row, int kv_head, int span, int begin, int end, int warp)
      : a_(a),
        table_(a.kv.tables + static_cast<size_t>(row) * a.kv.table_stride),
        shift_(page_shift(a.kv)),
        head_(kv_head),
        span_(span),
        end_(end),
        part_(begin),
        at_(begin + warp * kGroupPositions) {
    look_up();
  }
  __device__ __forceinline__ bool more() const { return at_ < end_; }
  __device__ __forceinline__ const Element* keys() const {
    const uint32_t slot = static_cast<uint32_t>((head_ << shift_) + (at_ & (a_.kv.page_tokens - 1)));
    return reinterpret_cast<const Element*>(a_.kv.base + static_cast<size_t>(page_) * a_.kv.page_stride +
                                            a_.kv.layer_offset) +
           slot * kDim;
  }
  __device__ __forceinline__ const Element* values_of(const Element* keys) const {
    return keys + static_cast<uint32_t>((a_.kv_heads << shift_) * kDim);
  }
  __device__ __forceinline__ void advance() {
    const int part_end = min(part_ + span_, end_);
    const int stream = (at_ - part_) / kGroupPositions % kStreams;
    at_ += kStreams * kGroupPositions;
    if (at_ >= part_end) {
      at_ = part_ + (stream + kWarps) * kGroupPositions;
      if (kWarps == kStreams || stream + kWarps >= kStreams || at_ >= part_end) {
        part_ += span_;
        at_ = part_ + stream % kWarps * kGroupPositions;
      }
    }
    look_up();
  }

 private:
  __device__ __forceinline__ void look_up() {
    if (more()) page_ = table_[at_ >> shift_];
  }

  const AttentionRows& a_;
  const int32_t* table_;
  int shift_, head_, span_, end_;
  int part_, at_;  // where the part begins, and the group
  int page_ = 0;
};

template <class Kv, int kDim, bool kSplit, int kBlocks>
__global__ void __maxnreg__((Residency<Kv, kDim, kBlocks>::kRegisters))
    attention_kernel(const __grid_constant__ AttentionRows a, int block_parts, bool own_row) {
  constexpr int kWarps = Residency<Kv, kDim, kBlocks>::kWarps;
  __shared__ __align__(16) AttentionShared<Kv, kDim, kSplit> shared;
  const int kv_head = blockIdx.y, row = blockIdx.z;
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = static_cast<int>(threadIdx.x & 31);
  ptx::griddepcontrol_launch_dependents();
  // Positions are set before the step's first kernel lets others begin, and earlier positions' keys before that.
  if (!own_row) ptx::griddepcontrol_wait();
  const int position = a.positions[row];
  const int length = position + 1, span = split_span(length);
  const int first_part = blockIdx.x * block_parts;
  const int last_part = min(first_part + block_parts, (length + span - 1) / span);
  if (first_part >= last_part) {
    ptx::griddepcontrol_wait();
    return;
  }
  const int begin = first_part * span, end = min(length, last_part * span);
  const bool has_own = own_row && end == length;
  Walk<Kv, kDim, kWarps> walk(a, row, kv_head, span, begin, end, warp);
  if (warp >= kWarps) return;
  const Preparation<Kv, kDim, kSplit, kWarps> preparation(a, row, kv_head, position, has_own, warp, lane);
  Group<Kv, kDim> kv;
  if (walk.more()) {
    kv.load_keys(walk.keys(), lane);
    kv.load_values(walk.values_of(walk.keys()), lane);
  }
  preparation.run(shared);
  __syncthreads();

  // A group with the row itself: loaded before it was stored, and later groups after.
  const int own = position - begin - warp * kGroupPositions;
  if (has_own && own >= 0 && own < kGroupPositions) kv.patch(own, shared.key, shared.value, lane);
  const float scale = Kv::score_scale(a) * (1.0f / Kv::kQueryPower);
  for (int part_begin = begin; part_begin < end; part_begin += span) {
    const int part_end = min(end, part_begin + span);
    const int streams = min(kStreams, (part_end - part_begin + kGroupPositions - 1) / kGroupPositions);
    for (int stream = warp; stream < streams; stream += kWarps) {
      WarpState<kDim> state;
#pragma unroll 1
      for (int at = part_begin + stream * kGroupPositions; at < part_end; at += kStreams * kGroupPositions) {
        walk.advance();
        const typename Kv::Element* next = walk.keys();
        float score[4];
        score_group<Kv, kDim, kSplit>(score, kv, shared, lane);
        if (walk.more()) kv.load_keys(next, lane);
        soften<kDim>(state, score, part_end - at, scale, lane);
        add_values<Kv, kDim, kSplit>(state, kv, score, lane);
        if (walk.more()) kv.load_values(walk.values_of(next), lane);
      }
      keep_stream<Kv, kDim, kSplit>(shared, state, stream, lane);
    }
    __syncthreads();
    write_part<Kv, kDim, kSplit, kWarps>(a, shared, streams, row, kv_head, part_begin / span);
    if (part_end < end) __syncthreads();
  }
}

template <class Kv, int kDim, bool kSplit, int kBlocks>
Status launch_blocks(const AttentionRows& args, KvState state, int rows, int block_parts, const Launch& how) {
  const dim3 blocks(static_cast<unsigned>((kMaxSplits + block_parts - 1) / block_parts),
                    static_cast<unsigned>(args.kv_heads), static_cast<unsigned>(rows));
  return launch(attention_kernel<Kv, kDim, kSplit, kBlocks>, {blocks, Residency<Kv, kDim, kBlocks>::kThreads}, how,
                "attention_rows", args, block_parts, state == KvState::kOwnRow);
}

// With 8 KV heads a row has 128 thread blocks of one part. More rows than four fill the device with several parts a thread
// block, which prepares its queries once.
template <class Kv, int kDim, bool kSplit>
Status launch_split(const AttentionRows& args, KvState state, int rows, const Launch& how) {
  if (rows == 1) return launch_blocks<Kv, kDim, kSplit, 1>(args, state, rows, 1, how);
  if (rows == 2) return launch_blocks<Kv, kDim, kSplit, 2>(args, state, rows, 1, how);
  return launch_blocks<Kv, kDim, kSplit, 4>(args, state, rows, (rows + 3) / 4, how);
}

template <class Kv, int kDim>
Status launch_dim(const AttentionRows& args, KvState state, int rows, const Launch& how) {
  return args.heads / args.kv_heads <= kHeadColumns / 2 ? launch_split<Kv, kDim, true>(args, state, rows, how)
                                                        : launch_split<Kv, kDim, false>(args, state, rows, how);
}

template <class Kv>
Status launch_kv(const AttentionRows& args, KvState state, int rows, const Launch& how) {
  return args.head_dim == 64 ? launch_dim<Kv, 64>(args, state, rows, how) : launch_dim<Kv, 128>(args, state, rows, how);
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
