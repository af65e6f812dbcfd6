// Attention of several query rows over a paged cache, with the merge of a row's parts: nothing is left for a kernel of its own.
//
// A cluster has one KV head of one row, a part goes to two warps of one of its thread blocks: a chain of streams each. A warp
// copies its own positions to shared memory, 16 at a time: the first keys are asked for right behind the queries' slots,
// before these are there. The parts then meet in the cluster's shared memory, are merged and rounded for the
// linear behind; where the rounding must know the whole row, round_rows does it.
//
// Moves   2 x length x head_dim x 2 bytes (FP8: 1) a KV head and row, once; slots of q for every thread block from L2;
//         2 head_dim bytes a query head back (unrounded: 4).
// Shapes  as attention.cu. A thread block takes a multiprocessor's shared memory, so that one has one.
// Order   as attention.cu, then as merge.cuh: the same bits.
#include <array>
#include <cstddef>

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/merge.cuh"
#include "kernels/cuda/rounding.cuh"

namespace halfbyte::cuda {
namespace {

// The forms of the kernel, by the thread blocks of a cluster. A pair of warps takes a part, or kRounds parts one after the
// other; 8 pairs are what a multiprocessor's registers hold, and with fewer warps a part's chains take longer than its bytes.
struct FourBlocks {  // and more
  static constexpr int kWarps = 8, kRounds = 1, kLeastBlocks = 4;
};
struct TwoBlocks {
  static constexpr int kWarps = 16, kRounds = 1, kLeastBlocks = 2;
};
struct OneBlock {
  static constexpr int kWarps = 16, kRounds = 2, kLeastBlocks = 1;
};

// Keys or values of 16 positions in shared memory, aligned to 256 bytes: a row's pieces of 16 bytes, swizzled within the row so
// that a warp's reads meet no bank twice (the smallest cache's values: two). A place is a lane's own, changed in the bits
// that number a piece, and a fixed distance.
template <class Kv, int kDim>
struct Staged {
  using Element = typename Kv::Element;
  using G = Group<Kv, kDim>;
  static constexpr bool kByRows = sizeof(Element) == 2;  // values reach the tensor cores by ldmatrix
  static constexpr int kRowBytes = kDim * static_cast<int>(sizeof(Element));
  static constexpr int kPieces = kRowBytes / 16;  // of a row
  static constexpr int kBytes = kGroupPositions * kRowBytes;

  static __device__ __forceinline__ uint32_t swizzle(bool is_value, int row) {
    return static_cast<uint32_t>((is_value ? row & 7 : kPieces > 4 ? (row & 1) << 2 : 0) & (kPieces - 1)) << 4;
  }
  static __device__ __forceinline__ uint32_t place(bool is_value, int row, int piece) {
    return static_cast<uint32_t>(row * kRowBytes + piece * 16) ^ swizzle(is_value, row);
  }

  // One group of 16 positions from `from`, by a whole warp.
  template <bool kValue>
  static __device__ __forceinline__ void copy(uint32_t to, const Element* from, int lane) {
    constexpr int kRows = 32 / kPieces;  // at once
    const uint32_t first = to + place(kValue, lane / kPieces, lane % kPieces);
#pragma unroll
    for (int i = 0; i < kGroupPositions / kRows; ++i)
      ptx::cp_async_16((first ^ swizzle(kValue, i * kRows)) + static_cast<uint32_t>(i * kRows * kRowBytes),
                       reinterpret_cast<const uint8_t*>(from) + (i * 32 + lane) * 16);
  }
  // The row itself, which was not in the cache yet when its group was copied.
  static __device__ __forceinline__ void patch(uint32_t to, bool is_value, int row, const Element* from, int lane) {
    if (lane < kPieces) ptx::sts_v4(to + place(is_value, row, lane), reinterpret_cast<const uint4*>(from)[lane]);
    __syncwarp();
  }

  static __device__ __forceinline__ void read_keys(G& kv, uint32_t from, int lane) {
    const uint32_t first = from + place(/*is_value=*/false, lane >> 2, lane & 3);
#pragma unroll
    for (int c = 0; c < G::kChunks; ++c) {
#pragma unroll
      for (int r = 0; r < 2; ++r)
        spread(kv.keys[r][c],
               ptx::lds_v4((first ^ static_cast<uint32_t>(c * 64)) + static_cast<uint32_t>(r * 8 * kRowBytes)));
    }
  }
  static __device__ __forceinline__ void read_values(G& kv, uint32_t from, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int p = 0; p < G::kPieces; ++p) {
        const int byte = G::value_place(p, lane) * static_cast<int>(sizeof(Element));
        const uint32_t at =
            from + place(/*is_value=*/true, G::value_row(i, lane), byte / 16) + static_cast<uint32_t>(byte % 16);
        if constexpr (G::kValueWords == 4) {
          spread(kv.values[i][p], ptx::lds_v4(at));
        } else {
          const uint2 two = ptx::lds_v2(at);
          kv.values[i][p][0] = two.x;
          kv.values[i][p][1] = two.y;
        }
      }
    }
  }
  // add_values straight from shared memory: 16 dimensions x 16 positions at once.
  template <bool kSplit>
  static __device__ __forceinline__ void add_values_by_rows(WarpState<kDim>& state, uint32_t from,
                                                            const float (&weight)[4], int lane) {
    uint32_t packed[2][2];
    pack_weights<Kv, kSplit>(packed, weight, lane);
    const uint32_t first = from + place(/*is_value=*/true, (lane >> 4) * 8 + (lane & 7), lane >> 3 & 1);
#pragma unroll
    for (int tile = 0; tile < kDim / 16; ++tile) {
      uint32_t a[4];
      ptx::ldmatrix_x4_trans(a, first ^ static_cast<uint32_t>(tile * 32));
      Kv::multiply(state.sums[tile], a, packed[0][0], packed[0][1]);
      if constexpr (!kSplit) Kv::multiply(state.sums[tile], a, packed[1][0], packed[1][1]);
    }
  }

 private:
  static __device__ __forceinline__ void spread(uint32_t (&to)[4], const uint4& from) {
    to[0] = from.x;
    to[1] = from.y;
    to[2] = from.z;
    to[3] = from.w;
  }
};

// A part where the cluster's thread blocks read it.
template <class Kv, int kDim, bool kSplit>
struct MergedPart {
  static constexpr int kHeads = QueryShared<Kv, kDim, kSplit>::kHeads;
  alignas(16) float sums[kHeads][kDim];
  float stats[kHeads][2];
};

// The parts of a pair's last round take the place of its second warp's ring.
template <class Kv, int kDim, bool kSplit, class Form>
struct MergedShared : QueryShared<Kv, kDim, kSplit> {
  static constexpr int kWarps = Form::kWarps, kRounds = Form::kRounds;
  using Part = MergedPart<Kv, kDim, kSplit>;
  static constexpr int kPairs = kWarps / kChains, kFirstParts = (kRounds - 1) * kPairs;
  static constexpr int kFirstPlaces = kFirstParts > 0 ? kFirstParts : 1;
  static constexpr int kRingAlign = 256;
  static constexpr int kFixedBytes =
      static_cast<int>(sizeof(QueryShared<Kv, kDim, kSplit>) + kFirstPlaces * sizeof(Part)) + kRingAlign;
  // Sets of keys or values of 16 positions.
  static constexpr int kSlots = (kMostSharedBytes - kFixedBytes) / kWarps / Staged<Kv, kDim>::kBytes;
  static_assert(kPairs * kRounds * Form::kLeastBlocks >= kMaxSplits, "a place for every part");
  static_assert(kSlots >= 2 && sizeof(Part) <= static_cast<size_t>(kSlots * Staged<Kv, kDim>::kBytes));
  alignas(kRingAlign) uint8_t rings[kWarps][kSlots * Staged<Kv, kDim>::kBytes];
  alignas(16) uint8_t first_parts[kFirstPlaces][sizeof(Part)];

  // The thread block's part `index`: pair index % kPairs takes it in round index / kPairs.
  __device__ __forceinline__ Part& part(int index) {
    if constexpr (kRounds > 1) {
      if (index < kFirstParts) return *reinterpret_cast<Part*>(first_parts[index]);
    }
    return *reinterpret_cast<Part*>(rings[(index - kFirstParts) * kChains + 1]);
  }
};

// Positions of the parts that a pair of warps takes, one after the other; each warp has its own.
struct PartWalk {
  int span, length, stride;  // stride: from the begin of a part to that of the pair's next one
  int begin, end;

  PartWalk() = default;
  __device__ __forceinline__ PartWalk(int row_length, int first, int step)
      : span(split_span(row_length)), length(row_length), stride(step * span) {
    set(first * span);
  }
  __device__ __forceinline__ void advance() { set(begin + stride); }
  __device__ __forceinline__ bool more() const { return begin < end; }
  __device__ __forceinline__ int streams() const {
    return min(kStreams, (end - begin + kGroupPositions - 1) / kGroupPositions);
  }

 private:
  __device__ __forceinline__ void set(int at) {
    begin = min(at, length);
    end = min(begin + span, length);
  }
};

// A warp's own, and its ring: keys, then values of each group of its chains, in turn. A lane waits for its own copies by their number,
// so one set is counted for each, also behind the last group.
template <class Kv, int kDim, int kSlots>
class Feed {
 public:
  using S = Staged<Kv, kDim>;

  // Made before the row's position is known.
  __device__ __forceinline__ Feed(const AttentionRows& a, int row, int kv_head, const uint8_t* ring, int lane)
      : a_(a),
        table_(a.kv.tables + static_cast<size_t>(row) * a.kv.table_stride),
        shift_(page_shift(a.kv)),
        head_(kv_head),
        lane_(lane),
        first_pages_(lane < a.kv.table_stride ? table_[lane] : 0),
        ring_(ptx::shared_address(ring)) {}

  __device__ __forceinline__ void place(const PartWalk& walk, int chain) {
    walk_ = walk;
    chain_ = chain;
    at_ = walk.begin + chain * kGroupPositions;
    look_up();
  }

  // The first set. The others follow when the queries are there: behind more, their slots would come late.
  __device__ __forceinline__ void begin() { send<false>(); }
  __device__ __forceinline__ void fill() {
    send<true>();
#pragma unroll 1
    for (int s = 2; s + 1 < kSlots; s += 2) {
      send<false>();
      send<true>();
    }
    if constexpr (kSlots % 2 != 0) send<false>();
  }
  // The oldest set; it stays until release().
  __device__ __forceinline__ uint32_t wait() {
    ptx::cp_async_wait<kSlots - 1>();
    __syncwarp();
    return ring_ + oldest_;
  }
  // kValue: what the oldest set holds.
  template <bool kValue>
  __device__ __forceinline__ void release() {
    __syncwarp();
    oldest_ = oldest_ + S::kBytes == kSlots * S::kBytes ? 0 : oldest_ + S::kBytes;
    send<kValue != (kSlots % 2 != 0)>();
  }

 private:
  template <bool kValue>
  __device__ __forceinline__ void send() {
    if (at_ < walk_.end) {
      const uint32_t slot = static_cast<uint32_t>(((kValue ? a_.kv_heads : 0) + head_) << shift_) +
                            static_cast<uint32_t>(at_ & (a_.kv.page_tokens - 1));
      S::template copy<kValue>(ring_ + newest_,
                               reinterpret_cast<const typename Kv::Element*>(
                                   a_.kv.base + static_cast<size_t>(page_) * a_.kv.page_stride + a_.kv.layer_offset) +
                                   slot * kDim,
                               lane_);
      if constexpr (kValue) advance();
    }
    ptx::cp_async_commit();
    newest_ = newest_ + S::kBytes == kSlots * S::kBytes ? 0 : newest_ + S::kBytes;
  }
  // In the stream, to the chain's next stream, or to the pair's next part.
  __device__ __forceinline__ void advance() {
    at_ += kStreams * kGroupPositions;
    if (at_ >= walk_.end) {
      const int stream = (at_ - walk_.begin) / kGroupPositions % kStreams + kChains;
      at_ = walk_.begin + stream * kGroupPositions;
      if (stream >= kStreams || at_ >= walk_.end) {
        walk_.advance();
        at_ = walk_.begin + chain_ * kGroupPositions;
      }
    }
    look_up();
  }
  __device__ __forceinline__ void look_up() {
    if (at_ >= walk_.end) return;
    const int page = at_ >> shift_;
    page_ = page < 32 ? __shfl_sync(~0u, first_pages_, page) : table_[page];
  }

  const AttentionRows& a_;
  const int32_t* table_;
  int shift_, head_, lane_;
  int first_pages_;  // the page of this number as the lane's
  PartWalk walk_;
  int chain_ = 0, at_ = 0;  // at: of the next set
  uint32_t ring_;
  int page_ = 0;
  uint32_t newest_ = 0, oldest_ = 0;  // sets, by their distance from the ring's begin
};

template <class Kv, int kDim, bool kSplit>
using ChainSums = StreamSums<Kv, kDim, kSplit, Staged<Kv, kDim>::kByRows>;

// A chain of a part's streams, from the ring to its sums.
template <class Kv, int kDim, bool kSplit, int kSlots>
__device__ __forceinline__ void run_chain(const AttentionRows& a, const QueryShared<Kv, kDim, kSplit>& shared,
                                          Feed<Kv, kDim, kSlots>& feed, const PartWalk& walk, int chain, int own,
                                          int lane, ChainSums<Kv, kDim, kSplit>& sums) {
  using S = Staged<Kv, kDim>;
  const float scale = Kv::score_scale(a) * (kLog2e / Kv::kQueryPower);
#pragma unroll 1
  for (int stream = chain; stream < walk.streams(); stream += kChains) {
    WarpState<kDim> state;
#pragma unroll 1
    for (int at = walk.begin + stream * kGroupPositions; at < walk.end; at += kStreams * kGroupPositions) {
      const bool has_own = own >= at && own < at + kGroupPositions;
      Group<Kv, kDim> kv;
      uint32_t set = feed.wait();
      if (has_own) S::patch(set, /*is_value=*/false, own - at, shared.key, lane);
      S::read_keys(kv, set, lane);
      feed.template release<false>();
      float score[4];
      score_group<Kv, kDim, kSplit>(score, kv, shared, lane);
      soften<kDim>(state, score, at == walk.begin + stream * kGroupPositions, walk.end - at, scale, lane);
      set = feed.wait();
      if (has_own) S::patch(set, /*is_value=*/true, own - at, shared.value, lane);
      if constexpr (S::kByRows) {
        S::template add_values_by_rows<kSplit>(state, set, score, lane);
        feed.template release<true>();
      } else {
        S::read_values(kv, set, lane);
        feed.template release<true>();
        add_values<Kv, kDim, kSplit>(state, kv, score, lane);
      }
    }
    const ChainSums<Kv, kDim, kSplit> next(state, lane);
    if (stream == chain) {
      sums = next;
    } else {
      sums.join(next);
    }
  }
}

// A part by its pair of warps: the second one leaves its chain where the first puts both.
template <class Kv, int kDim, bool kSplit, int kSlots>
__device__ __forceinline__ void run_part(const AttentionRows& a, const QueryShared<Kv, kDim, kSplit>& shared,
                                         Feed<Kv, kDim, kSlots>& feed, const PartWalk& walk, int pair, int chain,
                                         int own, int lane, MergedPart<Kv, kDim, kSplit>& part) {
  const bool both = walk.streams() > 1;
  if (chain == 1 && !both) return;
  ChainSums<Kv, kDim, kSplit> sums;
  run_chain(a, shared, feed, walk, chain, own, lane, sums);
  if (chain == 1) sums.store(part.sums, part.stats, lane);
  if (both) ptx::bar_sync(1 + pair, kChains * 32);
  if (chain == 1) return;
  if (both) {
    ChainSums<Kv, kDim, kSplit> second;
    second.load(part.sums, part.stats, lane);
    sums.join(second);
  }
  sums.finish(a);
  __syncwarp();  // all lanes have read the second chain's statistics
  sums.store(part.sums, part.stats, lane);
}

// The warps of the cluster's thread blocks merge 128 neighbours each, the thread blocks in turn. own_part: of the lane, where
// the part of number lane mod 16 is, as cluster_address gives it. All parts have been written before, and no thread block
// ends before all have read.
template <class Kv, int kDim, bool kSplit>
__device__ __forceinline__ void merge_cluster(const AttentionRows& a, const RowOutput& out, int columns, int splits,
                                              uint32_t own_part, int warp, int lane) {
  using Part = MergedPart<Kv, kDim, kSplit>;
  static_assert(kDim % (kMaxSplits * kValuesPerThread) == 0, "16 lanes lie in one head");
  const int width = a.heads / a.kv_heads * kDim, k = a.heads * kDim;
  const int first = (warp * static_cast<int>(gridDim.x) + static_cast<int>(blockIdx.x)) * kStepK;
  if (first >= width) return;
  const int mine = first + lane * kValuesPerThread;
  const bool inside = mine < width;
  const int head = inside ? mine / kDim : 0;
  const auto sums = static_cast<uint32_t>(offsetof(Part, sums) + (head * kDim + mine % kDim) * sizeof(float));
  const auto stats = static_cast<uint32_t>(offsetof(Part, stats) + head * sizeof(float2));
  float v[4];
  merge_parts(
      splits, inside, [&](int) { return ptx::ld_cluster_v2(own_part + stats); },
      [&](int part) { return ptx::ld_cluster_v4(__shfl_sync(~0u, own_part, part) + sums); }, v);
  const RowPlace at(static_cast<int>(blockIdx.z), inside ? static_cast<int>(blockIdx.y) * width + mine : k);
  if (!needs_row_amax(out.mode, out.static_alpha)) return write_rounded(out, at, columns, k, RowRounding(out, 0.0f), v);
  if (inside)
    *reinterpret_cast<float4*>(a.parts + static_cast<size_t>(at.row) * k + at.element) =
        make_float4(v[0], v[1], v[2], v[3]);
}

template <class Kv, int kDim, bool kSplit, class Form>
__global__ void __launch_bounds__(Form::kWarps * 32, 1)
    attention_merged_kernel(const __grid_constant__ AttentionRows a, const __grid_constant__ RowOutput out, int columns,
                            bool own_row) {
  HB_FROM_SM90();
  using Shared = MergedShared<Kv, kDim, kSplit, Form>;
  static_assert(sizeof(Shared) <= kMostSharedBytes);
  extern __shared__ __align__(256) uint8_t dynamic_shared[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic_shared);
  const int rank = static_cast<int>(blockIdx.x), blocks = static_cast<int>(gridDim.x);
  const int kv_head = static_cast<int>(blockIdx.y), row = static_cast<int>(blockIdx.z);
  const int warp = ptx::uniform(static_cast<int>(threadIdx.x >> 5)), lane = static_cast<int>(threadIdx.x & 31);
  ptx::griddepcontrol_launch_dependents();
  const int pair = warp / kChains, chain = warp % kChains;
  Feed<Kv, kDim, Shared::kSlots> feed(a, row, kv_head, shared.rings[warp], lane);
  Preparation<Kv, kDim, kSplit, Form::kWarps> preparation(a, row, kv_head, warp, lane);
  // Positions are set before the step's first kernel lets others begin, and earlier positions' keys before that.
  if (!own_row) ptx::griddepcontrol_wait();
  const int position = ptx::uniform(a.positions[row]);
  if (position < 0) {
    ptx::griddepcontrol_wait();
    return;
  }
  const int splits = splits_of(position);
  PartWalk walk(position + 1, pair * blocks + rank, Shared::kPairs * blocks);
  feed.place(walk, chain);
  preparation.place(position, own_row && __any_sync(~0u, lane * blocks + rank == splits - 1));
  preparation.run(shared, [&] { feed.begin(); });
  feed.fill();
  __syncthreads();
#pragma unroll 1
  for (int index = pair; walk.more(); index += Shared::kPairs, walk.advance())
    run_part(a, shared, feed, walk, pair, chain, own_row ? position : -1, lane, shared.part(index));
  ptx::cluster_arrive();
  ptx::cluster_wait();
  const int number = lane % kMaxSplits;
  const uint32_t own_part =
      ptx::cluster_address(ptx::shared_address(&shared.part(number / blocks % (Form::kRounds * Shared::kPairs))),
                           static_cast<uint32_t>(number % blocks));
  merge_cluster<Kv, kDim, kSplit>(a, out, columns, splits, own_part, warp, lane);
  // No thread block's memory goes while another reads it.
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

// Of a form's kernel: whether it may have its shared memory, and how many clusters of so many thread blocks the device holds
// at once.
struct Room {
  cudaError_t allowed;
  std::array<int, kClusterBlocks + 1> clusters{};
};
template <class Kv, int kDim, bool kSplit, class Form>
const Room& room_of() {
  static const Room kRoom = [] {
    constexpr auto kKernel = attention_merged_kernel<Kv, kDim, kSplit, Form>;
    constexpr auto kBytes = sizeof(MergedShared<Kv, kDim, kSplit, Form>);
    Room room{cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes)};
    if (room.allowed != cudaSuccess) {
      cudaGetLastError();
      return room;
    }
    for (int n = 1; n <= kClusterBlocks; ++n)
      room.clusters[static_cast<size_t>(n)] = most_clusters(kKernel, n, Form::kWarps * 32, kBytes);
    return room;
  }();
  return kRoom;
}

template <class Kv, int kDim, bool kSplit, class Form>
Status launch_cluster(const AttentionRows& args, KvState state, const RowOutput& out, int rows, int blocks,
                      const Launch& how) {
  HB_TRY(check(room_of<Kv, kDim, kSplit, Form>().allowed, "shared memory of attention_merged"));
  const Grid grid{
      dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(args.kv_heads), static_cast<unsigned>(rows)),
      Form::kWarps * 32, sizeof(MergedShared<Kv, kDim, kSplit, Form>), blocks};
  return launch(attention_merged_kernel<Kv, kDim, kSplit, Form>, grid, how, "attention_merged", args, out,
                padded_rows(rows), state == KvState::kOwnRow);
}

// As many thread blocks a cluster as the device has room for beside the others'.
template <class Kv, int kDim, bool kSplit>
Status launch_split(const AttentionRows& args, KvState state, const RowOutput& out, int rows, const Launch& how) {
  const int clusters = args.kv_heads * rows;
  for (int blocks = kClusterBlocks; blocks > 1; --blocks) {
    const auto n = static_cast<size_t>(blocks);
    if (blocks >= FourBlocks::kLeastBlocks) {
      if (room_of<Kv, kDim, kSplit, FourBlocks>().clusters[n] >= clusters)
        return launch_cluster<Kv, kDim, kSplit, FourBlocks>(args, state, out, rows, blocks, how);
    } else if (room_of<Kv, kDim, kSplit, TwoBlocks>().clusters[n] >= clusters) {
      return launch_cluster<Kv, kDim, kSplit, TwoBlocks>(args, state, out, rows, blocks, how);
    }
  }
  return launch_cluster<Kv, kDim, kSplit, OneBlock>(args, state, out, rows, 1, how);
}

template <class Kv, int kDim>
Status launch_dim(const AttentionRows& args, KvState state, const RowOutput& out, int rows, const Launch& how) {
  return args.heads / args.kv_heads <= kHeadColumns / 2 ? launch_split<Kv, kDim, true>(args, state, out, rows, how)
                                                        : launch_split<Kv, kDim, false>(args, state, out, rows, how);
}

template <class Kv>
Status launch_kv(const AttentionRows& args, KvState state, const RowOutput& out, int rows, const Launch& how) {
  return args.head_dim == 64 ? launch_dim<Kv, 64>(args, state, out, rows, how)
                             : launch_dim<Kv, 128>(args, state, out, rows, how);
}

}  // namespace

// One row's parts have a thread block each (attention.cu): 16 would have to be one cluster, and an H200 holds seven of those at
// once, where a row of 8 KV heads needs eight.
bool attention_merges(int rows) {
  return active_kernels().clusters && rows > 1;
}

Status attention_merged(const AttentionRows& args, KvState state, const RowOutput& out, int rows, Launch how) {
  HB_TRY(check_attention(args));
  HB_TRY(args.kv.fp8 ? launch_kv<Fp8Kv>(args, state, out, rows, how) : launch_kv<Bf16Kv>(args, state, out, rows, how));
  if (!needs_row_amax(out.mode, out.static_alpha)) return {};
  RoundRows round;
  round.k = args.heads * args.head_dim;
  round.y.partial = args.parts;
  round.y.rows = round.k;
  round.y.columns = padded_rows(rows);
  round.out = out;
  round.positions = args.positions;
  return round_rows(round, rows, how);
}

}  // namespace halfbyte::cuda
