// Attention of single query rows over a paged BF16 or FP8 cache, cut into parts at absolute positions.
//
// A thread block has a part, or a few one after the other, of one KV head of one row: it adds the slots of q (and k, v),
// norms and rotates them, appends the row's key and value, and leaves sums that merge_rows divides. Keys and values go from
// the cache's rows in registers to the tensor cores (attention.cuh). Several rows on a device with clusters:
// attention_merged.cu.
//
// Moves   2 x length x head_dim x 2 bytes (FP8: 1) a KV head and row, once; slots of q for every part from L2.
// Shapes  head_dim 64 or 128, up to 8 query heads a KV head, pages of 16 or more positions.
// Order   parts of split_span(length) positions; in a part stream i of 8 has the 16-position groups g with g mod 8 = i,
//         ascending, over a maximum that is raised when a score is more than kSlack above it; the even streams ascending, the
//         odd ones ascending, both joined; the parts ascending (merge_rows). It depends on the row's own length only.
#include "kernels/cuda/attention.cuh"

namespace halfbyte::cuda {
namespace {
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

template <class Kv, int kDim>
__global__ void __launch_bounds__(64) append_kernel(const __grid_constant__ AttentionRows a) {
  const int head = blockIdx.x, row = blockIdx.y, lane = threadIdx.x & 31;
  const bool is_value = threadIdx.x >= 32;
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int position = a.positions[row];
  if (position < 0) return;
  HeadReader<kDim> reader = kv_reader<kDim>(a, is_value, head, lane);
  reader.place(a, position, lane);
  const HeadVector<kDim> h = reader.read(row);
  store_head<Kv>(h, cache_row<Kv>(a.kv, row, a.kv_heads, kDim, is_value, head, position), cache_scale(a.kv, is_value),
                 lane);
}

// The streams of the part that is worked on.
template <class Kv, int kDim, bool kSplit>
struct AttentionShared : QueryShared<Kv, kDim, kSplit> {
  using Query = QueryShared<Kv, kDim, kSplit>;
  float stats[kStreams][Query::kHeads][2];
  alignas(16) float sums[kStreams][Query::kHeads][kDim];
};

// Four neighbours of a head over the streams so far.
struct PartSum {
  float most, total, sum[4];
  __device__ __forceinline__ void join(const PartSum& next) {
    const StreamJoin join(most, next.most);
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = join(sum[i], next.sum[i]);
    total = join(total, next.total);
    most = join.most;
  }
};

// Of the streams first, first + kChains, ...
template <int kDim, class Stats, class Sums>
__device__ __forceinline__ PartSum chain_sum(const Stats& stats, const Sums& sums, int first, int streams, int head,
                                             int d) {
  const auto stream = [&](int s) {
    const float4 v = *reinterpret_cast<const float4*>(&sums[s][head][d]);
    return PartSum{stats[s][head][0], stats[s][head][1], {v.x, v.y, v.z, v.w}};
  };
  PartSum chain = stream(first);
#pragma unroll
  for (int s = kChains; s < kStreams; s += kChains) {
    if (first + s < streams) chain.join(stream(first + s));
  }
  return chain;
}

// Writes the part: its two chains of streams, joined.
template <class Kv, int kDim, bool kSplit, int kWarps>
__device__ __forceinline__ void write_part(const AttentionRows& a, const AttentionShared<Kv, kDim, kSplit>& shared,
                                           int streams, int row, int kv_head, int part) {
  const int group = a.heads / a.kv_heads;
  for (int i = static_cast<int>(threadIdx.x); i < group * kDim / 4; i += kWarps * 32) {
    const int h = i / (kDim / 4), d = i % (kDim / 4) * 4;
    PartSum both = chain_sum<kDim>(shared.stats, shared.sums, 0, streams, h, d);
    if (streams > 1) both.join(chain_sum<kDim>(shared.stats, shared.sums, 1, streams, h, d));
#pragma unroll
    for (float& v : both.sum) v = finish_sum<Kv>(v, a);
    const size_t at = (static_cast<size_t>(row) * a.heads + kv_head * group + h) * kMaxSplits + part;
    *reinterpret_cast<float4*>(a.parts + at * kDim + d) =
        make_float4(both.sum[0], both.sum[1], both.sum[2], both.sum[3]);
    if (d == 0) *reinterpret_cast<float2*>(a.stats + at * 2) = make_float2(both.most, both.total);
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
  const int warp = ptx::uniform(static_cast<int>(threadIdx.x >> 5)), lane = static_cast<int>(threadIdx.x & 31);
  ptx::griddepcontrol_launch_dependents();
  if (warp >= kWarps) return;
  Preparation<Kv, kDim, kSplit, kWarps> preparation(a, row, kv_head, warp, lane);
  // Positions are set before the step's first kernel lets others begin, and earlier positions' keys before that.
  if (!own_row) ptx::griddepcontrol_wait();
  const int position = ptx::uniform(a.positions[row]);
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
  preparation.place(position, has_own);
  Group<Kv, kDim> kv;
  if (walk.more()) {
    kv.load_keys(walk.keys(), lane);
    kv.load_values(walk.values_of(walk.keys()), lane);
  }
  preparation.run(shared, [] {});
  __syncthreads();

  // A group with the row itself: loaded before it was stored, and later groups after.
  const int own = position - begin - warp * kGroupPositions;
  if (has_own && own >= 0 && own < kGroupPositions) kv.patch(own, shared.key, shared.value, lane);
  const float scale = Kv::score_scale(a) * (kLog2e / Kv::kQueryPower);
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
        soften<kDim>(state, score, at == part_begin + stream * kGroupPositions, part_end - at, scale, lane);
        add_values<Kv, kDim, kSplit>(state, kv, score, lane);
        if (walk.more()) kv.load_values(walk.values_of(next), lane);
      }
      StreamSums<Kv, kDim, kSplit>(state, lane).store(shared.sums[stream], shared.stats[stream], lane);
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
