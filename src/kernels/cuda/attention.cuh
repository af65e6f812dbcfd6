// What the attention kernels of decode rows share: 16 positions of keys and values in a warp's registers, their scores and
// sums on the tensor cores, and how the sums of a part's streams are joined (docs/numerics.md 8).
//
// Keys, and values transposed, are the 16-row operand, with a KV head's query heads as columns; queries and exponentials are
// two halves of 16 bits each, side by side in the 8 columns for up to 4 heads.
#pragma once

#include "kernels/cuda/head_reader.cuh"

namespace halfbyte::cuda {

inline constexpr int kStreams = 8;          // a part's 16-position groups go to these in turn
inline constexpr int kChains = 2;           // of a part's streams, even and odd: each joined in order, then both
inline constexpr int kGroupPositions = 16;  // positions that a warp takes at once
inline constexpr int kHeadColumns = 8;      // columns of the MMA
// Scores are held times log2 e, and their exponentials are the device's ex2.approx (relative error 2^-22).
inline constexpr float kSlack = 5.75f;  // what a score may lie above the maximum that it is taken over

// Of KV head `head`: its key (normed and rotated) or its value.
template <int kDim>
__device__ __forceinline__ HeadReader<kDim> kv_reader(const AttentionRows& a, bool is_value, int head, int lane) {
  return HeadReader<kDim>(a, (a.heads + (is_value ? a.kv_heads : 0) + head) * kDim, is_value ? nullptr : a.k_norm,
                          !is_value, lane);
}

// What the numbers of keys or values are divided by in the cache.
__device__ __forceinline__ float cache_scale(const KvPages& kv, bool is_value) {
  return is_value ? kv.value_scale : kv.key_scale;
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
struct QueryShared {
  static constexpr int kHalves = kSplit ? 1 : 2;
  static constexpr int kHeads = kSplit ? kHeadColumns / 2 : kHeadColumns;
  // Between the columns, so that a warp's reads of 16 bytes meet no bank twice.
  static constexpr int kPad = sizeof(typename Kv::Element) == 2 ? 32 : 8;
  alignas(16) uint16_t query[kHalves][kHeadColumns][kDim + kPad];
  alignas(16) typename Kv::Element key[kDim];  // of the row itself
  alignas(16) typename Kv::Element value[kDim];
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
                                            const QueryShared<Kv, kDim, kSplit>& shared, int lane) {
  using G = Group<Kv, kDim>;
  constexpr int kHalves = QueryShared<Kv, kDim, kSplit>::kHalves;
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

// The maximum and what was added up under the one before; fresh: nothing was.
template <int kDim>
__device__ __forceinline__ void raise_most(WarpState<kDim>& state, const float (&score)[4], bool fresh) {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const float most = fmaxf(
        state.most[h], across_positions(fmaxf(score[h], score[2 + h]), [](float a, float b) { return fmaxf(a, b); }));
    const float shrink = ptx::ex2_approx_ftz(state.most[h] - most);
    state.most[h] = most;
    if (fresh) continue;
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
__device__ __forceinline__ void soften(WarpState<kDim>& state, float (&score)[4], bool fresh, int valid, float scale,
                                       int lane) {
  const int g = lane >> 2;
  bool above = false;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    score[e] = g + e / 2 * 8 < valid ? score[e] * scale : -INFINITY;
    above |= score[e] > state.most[e % 2] + kSlack;
  }
  if (__any_sync(~0u, above)) raise_most(state, score, fresh);
#pragma unroll
  for (int e = 0; e < 4; ++e) score[e] = ptx::ex2_approx_ftz(score[e] - state.most[e % 2]);
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
__device__ __forceinline__ void store_query(QueryShared<Kv, kDim, kSplit>& shared, int head, const HeadVector<kDim>& h,
                                            int lane) {
  using Shared = QueryShared<Kv, kDim, kSplit>;
  uint16_t* high = shared.query[0][head];
  uint16_t* low = shared.query[Shared::kHalves - 1][kSplit ? head + kHeadColumns / 2 : head];
#pragma unroll
  for (int i = 0; i < HeadVector<kDim>::kPerLane; ++i) {
    const float v = h.v[i] * Kv::kQueryPower;
    const uint32_t top = Kv::pack(v, 0.0f);
    high[lane + 32 * i] = static_cast<uint16_t>(top);
    low[lane + 32 * i] = static_cast<uint16_t>(Kv::pack(v - Kv::unpack(top).x, 0.0f));
  }
}

// What a thread block prepares in shared memory: the group's queries, then, with `own`, the row's key and value; a task each.
// Made before the row's position is known: a warp's first task reads what never changes. All warps of the block call it.
template <class Kv, int kDim, bool kSplit, int kWarps>
class Preparation {
 public:
  using Shared = QueryShared<Kv, kDim, kSplit>;

  __device__ __forceinline__ Preparation(const AttentionRows& a, int row, int kv_head, int warp, int lane)
      : a_(a),
        row_(row),
        kv_head_(kv_head),
        group_(a.heads / a.kv_heads),
        warp_(warp),
        lane_(lane),
        first_(reader(warp)) {}

  __device__ __forceinline__ void place(int position, bool own) {
    position_ = position;
    tasks_ = group_ + (own ? 2 : 0);
    first_.place(a_, position, lane_);
  }

  // meanwhile(): what is asked for behind the first task's slots.
  template <class Meanwhile>
  __device__ __forceinline__ void run(Shared& shared, Meanwhile meanwhile) const {
    for (int head = group_ + warp_; head < Shared::kHeads; head += kWarps)
      store_query<Kv, kDim, kSplit>(shared, head, HeadVector<kDim>{}, lane_);  // heads that are not there
    ptx::griddepcontrol_wait();
    typename HeadReader<kDim>::Slots slots;
    if (warp_ < tasks_) first_.ask(row_, slots);
    meanwhile();
    if (warp_ < tasks_) keep(shared, warp_, first_.finish(slots));
    for (int task = warp_ + kWarps; task < tasks_; task += kWarps) {
      HeadReader<kDim> from = reader(task);
      from.place(a_, position_, lane_);
      keep(shared, task, from.read(row_));
    }
  }

 private:
  __device__ __forceinline__ HeadReader<kDim> reader(int task) const {
    if (task >= group_) return kv_reader<kDim>(a_, task > group_, kv_head_, lane_);
    return HeadReader<kDim>(a_, (kv_head_ * group_ + task) * kDim, a_.q_norm, /*rotate=*/true, lane_);
  }
  __device__ __forceinline__ void keep(Shared& shared, int task, const HeadVector<kDim>& h) const {
    if (task < group_) return store_query<Kv, kDim, kSplit>(shared, task, h, lane_);
    const bool is_value = task > group_;
    const float scale = cache_scale(a_.kv, is_value);
    store_head<Kv>(h, is_value ? shared.value : shared.key, scale, lane_);
    store_head<Kv>(h, cache_row<Kv>(a_.kv, row_, a_.kv_heads, kDim, is_value, kv_head_, position_), scale, lane_);
  }

  const AttentionRows& a_;
  int row_, kv_head_, group_, warp_, lane_;
  int position_ = 0, tasks_ = 0;
  HeadReader<kDim> first_;
};

// What the streams so far and the next one are multiplied by, so that they stand over one maximum.
struct StreamJoin {
  float most, kept, taken;
  __device__ __forceinline__ StreamJoin(float so_far, float next)
      : most(fmaxf(so_far, next)), kept(ptx::ex2_approx_ftz(so_far - most)), taken(ptx::ex2_approx_ftz(next - most)) {}
  __device__ __forceinline__ float operator()(float so_far, float next) const {
    return fmaf(next, taken, so_far * kept);
  }
};

// What the sums of a part are multiplied by at its end.
template <class Kv>
__device__ __forceinline__ float finish_sum(float sum, const AttentionRows& a) {
  return Kv::value(sum * (1.0f / Kv::kWeightPower), a);
}

// A stream's sums and statistics as they are joined. Lane (g, t) has the heads head() and head() + 1; with kSplit the high
// and low halves' sums have met, and of two lanes one has the even tiles and the other the odd ones. kByRows: a tile's
// dimensions are the MMA's rows; else as Group holds values.
template <class Kv, int kDim, bool kSplit, bool kByRows = false>
struct StreamSums {
  static constexpr int kTiles = kDim / 16 / (kSplit ? 2 : 1);
  float most[2];
  float total[2];
  float sums[kTiles][4];  // of two dimensions: head, head + 1; head, head + 1

  StreamSums() = default;
  __device__ __forceinline__ StreamSums(const WarpState<kDim>& state, int lane) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = state.most[h];
      total[h] = across_positions(state.total[h], [](float a, float b) { return a + b; });
    }
    const bool odd = (lane & 2) != 0;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if constexpr (kSplit) {
          const float mine = odd ? state.sums[2 * i + 1][e] : state.sums[2 * i][e];
          sums[i][e] = mine + __shfl_xor_sync(~0u, odd ? state.sums[2 * i][e] : state.sums[2 * i + 1][e], 2);
        } else {
          sums[i][e] = state.sums[i][e];
        }
      }
    }
  }

  template <class Sums, class Stats>
  __device__ __forceinline__ void load(const Sums& from, const Stats& stats, int lane) {
    const int first = head(lane);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][e] = from[first + e % 2][place(i, e / 2, lane)];
    }
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      most[h] = stats[first + h][0];
      total[h] = stats[first + h][1];
    }
  }

  // What is so far, and the next stream or chain.
  __device__ __forceinline__ void join(const StreamSums& next) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const StreamJoin join(most[h], next.most[h]);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        sums[i][h] = join(sums[i][h], next.sums[i][h]);
        sums[i][2 + h] = join(sums[i][2 + h], next.sums[i][2 + h]);
      }
      total[h] = join(total[h], next.total[h]);
      most[h] = join.most;
    }
  }
  __device__ __forceinline__ void finish(const AttentionRows& a) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (float& v : sums[i]) v = finish_sum<Kv>(v, a);
    }
  }

  static __device__ __forceinline__ int head(int lane) {
    return 2 * (lane & (kSplit ? 1 : 3));
  }
  // The first or second dimension of sums[i].
  static __device__ __forceinline__ int place(int i, int second, int lane) {
    const int tile = kSplit ? 2 * i + (lane >> 1 & 1) : i;
    return kByRows ? tile * 16 + (lane >> 2) + 8 * second : Group<Kv, kDim>::tile_place(tile, lane) + second;
  }
  // Of a head into [kDim] of shared memory each, and its statistics into a pair.
  template <class Sums, class Stats>
  __device__ __forceinline__ void store(Sums& to, Stats& stats, int lane) const {
    const int first = head(lane);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if constexpr (kByRows) {
          to[first + h][place(i, 0, lane)] = sums[i][h];
          to[first + h][place(i, 1, lane)] = sums[i][2 + h];
        } else {
          *reinterpret_cast<float2*>(&to[first + h][place(i, 0, lane)]) = make_float2(sums[i][h], sums[i][2 + h]);
        }
      }
    }
    if (lane < (kSplit ? 2 : 4)) {
#pragma unroll
      for (int h = 0; h < 2; ++h) *reinterpret_cast<float2*>(stats[first + h]) = make_float2(most[h], total[h]);
    }
  }
};

}  // namespace halfbyte::cuda
