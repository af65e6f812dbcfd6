// From rows of logits to tokens: docs/numerics.md 4 on the device, one cluster of 8 thread blocks a row.
//
// Moves   slots x vocab x 4 bytes a row from L2, once: each thread block keeps its part in shared memory.
// Exact   maximum, greedy token, entropy (chunks of 4,096 logits, 32 lanes, in the contract's order), weights of a draw
//         (integers), what min-p, top-k and top-p keep, and the drawn token are the host sampler's, bit for bit, for
//         equal logits.
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/draw_values.cuh"
#include "kernels/cuda/portable.h"

namespace halfbyte::cuda {
namespace {

constexpr int kBins = 256;       // of a radix search
constexpr int kMostChunks = 12;  // of a thread block: 8 * 12 * 4096 = 393,216 logits

// Where a search has got to: the bin in which the prefix ends, and what is heavier than all of it.
struct Found {
  int bin;
  uint32_t tokens;
  uint64_t weight;
  uint64_t above_tokens, above_weight;
};

struct DrawShared : PolicyShared {
  float most[kDrawWarps];
  int bad[kDrawWarps];
  int first[kDrawWarps];
  uint64_t warp_total[kDrawWarps];
  // Read by the other thread blocks of the cluster:
  float block_most;
  int block_bad;
  int block_first;
  double chunk_z[kMostChunks], chunk_s[kMostChunks];
  unsigned long long chunk_weight[kMostChunks];
  int token;
  float entropy, temperature;
  uint32_t bin_tokens[kBins];  // of rank 0: the cluster's in the end, as are:
  unsigned long long bin_weight[kBins];
  Found found;
  uint32_t ties;
};

struct Part {  // of the vocabulary, of one thread block
  int first, count, chunks;
};

__device__ __forceinline__ Part part_of(int vocab, int rank) {
  const int chunks = (vocab + kChunkLogits - 1) / kChunkLogits;
  const int each = (chunks + kClusterBlocks - 1) / kClusterBlocks;
  const int first = min(rank * each * kChunkLogits, vocab);
  const int count = min(vocab - first, each * kChunkLogits);
  return {first, count, (count + kChunkLogits - 1) / kChunkLogits};
}

// The part's logits into shared memory, several loads on their way at once; the thread's maximum, and whether it saw a NaN.
template <bool kSlots>
__device__ __forceinline__ void load_logits(const DrawRows& a, float* logits, const Part& part, int row, float& most,
                                            int& bad) {
  constexpr int kBatch = kSlots ? 2 : 8;
  for (int first = static_cast<int>(threadIdx.x); first < part.count; first += kBatch * kDrawThreads) {
    float y[kBatch];
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = first + j * kDrawThreads;
      y[j] = i < part.count ? read_logit<kSlots>(a.logits, row, part.first + i) : -INFINITY;
    }
#pragma unroll
    for (int j = 0; j < kBatch; ++j) {
      const int i = first + j * kDrawThreads;
      if (i >= part.count) break;
      logits[i] = y[j];
      if (a.plain != nullptr) a.plain[static_cast<size_t>(row) * a.vocab + part.first + i] = y[j];
      most = y[j] > most ? y[j] : most;
      bad |= y[j] != y[j] ? 1 : 0;
    }
  }
}

// Loads, and the cluster's maximum: NaN when a logit is NaN or +infinity or all are -infinity.
__device__ float load_and_max(const DrawRows& a, DrawShared& shared, float* logits, const Part& part, int row) {
  float most = -INFINITY;
  int bad = 0;
  if (a.logits.slot_counts != nullptr) {
    load_logits<true>(a, logits, part, row, most, bad);
  } else {
    load_logits<false>(a, logits, part, row, most, bad);
  }
  most = warp_reduce(most, [](float x, float y) { return fmaxf(x, y); });
  bad = warp_reduce(bad, [](int x, int y) { return x | y; });
  if ((threadIdx.x & 31) == 0) {
    shared.most[threadIdx.x >> 5] = most;
    shared.bad[threadIdx.x >> 5] = bad;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kDrawWarps; ++w) {
      most = fmaxf(most, shared.most[w]);
      bad |= shared.bad[w];
    }
    shared.block_most = most;
    shared.block_bad = bad;
  }
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  most = -INFINITY;
  bad = 0;
  for (int b = 0; b < kClusterBlocks; ++b) {
    most = fmaxf(most, *cluster.map_shared_rank(&shared.block_most, b));
    bad |= *cluster.map_shared_rank(&shared.block_bad, b);
  }
  return bad != 0 || most == INFINITY || most == -INFINITY ? __builtin_nanf("") : most;
}

// Lowest index of the maximum, over the cluster; the same in every thread of rank 0.
__device__ int greedy(DrawShared& shared, const float* logits, const Part& part, float most) {
  int first = 0x7FFFFFFF;
  for (int i = static_cast<int>(threadIdx.x); i < part.count; i += kDrawThreads) {
    if (logits[i] == most) first = min(first, part.first + i);
  }
  first = warp_reduce(first, [](int x, int y) { return min(x, y); });
  if ((threadIdx.x & 31) == 0) shared.first[threadIdx.x >> 5] = first;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kDrawWarps; ++w) first = min(first, shared.first[w]);
    shared.block_first = first;
  }
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  first = 0x7FFFFFFF;
  for (int b = 0; b < kClusterBlocks; ++b) first = min(first, *cluster.map_shared_rank(&shared.block_first, b));
  return first;
}

// A warp a chunk; chunks are added by thread 0 of rank 0.
__device__ float entropy_of(DrawShared& shared, const float* logits, const Part& part, float most, int vocab) {
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = static_cast<int>(threadIdx.x & 31);
  for (int chunk = warp; chunk < part.chunks; chunk += kDrawWarps) {
    const EntropySums sums =
        entropy_sums(logits, chunk * kChunkLogits, min(part.count, (chunk + 1) * kChunkLogits), most);
    if (lane == 0) {
      shared.chunk_z[chunk] = sums.z;
      shared.chunk_s[chunk] = sums.s;
    }
  }
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  if (cluster.block_rank() != 0 || threadIdx.x != 0) return 0.0f;
  double z = 0, s = 0;
  for (int b = 0; b < kClusterBlocks; ++b) {
    const int chunks = part_of(vocab, b).chunks;
    for (int c = 0; c < chunks; ++c) {
      z += *cluster.map_shared_rank(&shared.chunk_z[c], b);
      s += *cluster.map_shared_rank(&shared.chunk_s[c], b);
    }
  }
  return static_cast<float>(log64(z) - s / z);
}

// Entropy and the temperature that follows from it, the same in every thread of the cluster.
struct Choice {
  float entropy, temperature;
};
__device__ Choice choose(DrawShared& shared, const float* logits, const Part& part, float most, const DrawRule& rule,
                         int vocab) {
  if (!rule.wants_entropy && !rule.by_entropy) return {0.0f, rule.temperature};
  const float entropy = entropy_of(shared, logits, part, most, vocab);
  if (!rule.by_entropy) return {entropy, rule.temperature};  // only the thread that reports it has the entropy
  cg::cluster_group cluster = cg::this_cluster();
  if (cluster.block_rank() == 0 && threadIdx.x == 0) {
    shared.entropy = entropy;
    shared.temperature = shared.step().decide(static_cast<double>(entropy)).temperature;
  }
  cluster.sync();
  return {*cluster.map_shared_rank(&shared.entropy, 0), *cluster.map_shared_rank(&shared.temperature, 0)};
}

// The token at which the running sum of integer weights over the vocabulary first exceeds at(their total); the same in every
// thread of the cluster.
template <class Weigh, class At>
__device__ int select_token(DrawShared& shared, const Part& part, int vocab, const Weigh& weigh, const At& at) {
  const int lane = static_cast<int>(threadIdx.x & 31);
  if (threadIdx.x < kMostChunks) shared.chunk_weight[threadIdx.x] = 0;
  if (threadIdx.x == 0) shared.token = -1;
  __syncthreads();
  for (int chunk = 0; chunk < part.chunks; ++chunk) {
    unsigned long long sum = 0;
    const int end = min(part.count, (chunk + 1) * kChunkLogits);
    for (int i = chunk * kChunkLogits + static_cast<int>(threadIdx.x); i < end; i += kDrawThreads) sum += weigh(i);
    sum = warp_reduce(sum, [](unsigned long long x, unsigned long long y) { return x + y; });
    if (lane == 0) atomicAdd(&shared.chunk_weight[chunk], sum);  // integers: exact in any order
  }
  cg::cluster_group cluster = cg::this_cluster();
  cluster.sync();
  const int rank = static_cast<int>(cluster.block_rank());
  uint64_t total = 0, mine = 0;  // mine: what stands before this block's part
  for (int b = 0; b < kClusterBlocks; ++b) {
    if (b == rank) mine = total;
    const int chunks = part_of(vocab, b).chunks;
    for (int c = 0; c < chunks; ++c) total += *cluster.map_shared_rank(&shared.chunk_weight[c], b);
  }
  const uint64_t r = at(total);
  for (int c = 0; c < part.chunks; ++c) {
    const uint64_t weight = shared.chunk_weight[c];
    if (mine <= r && r < mine + weight) find_token(shared, c, part.count, part.first, r - mine, weigh);
    mine += weight;
  }
  cluster.sync();
  int token = -1;
  for (int b = 0; b < kClusterBlocks; ++b) token = max(token, *cluster.map_shared_rank(&shared.token, b));
  return token;
}

// --- top-k and top-p: the shortest prefix in order of falling weight, then rising id, that is enough ---

// Tokens heavier than `above`, and the first `ties` of those that weigh `above`; what they weigh together.
struct Prefix {
  uint32_t above = 0, ties = 0;
  uint64_t weight = 0;
};
struct EnoughTokens {
  uint64_t tokens;
  __device__ __forceinline__ void begin(uint64_t) {}
  __device__ __forceinline__ bool operator()(uint64_t count, uint64_t) const { return count >= tokens; }
};
struct EnoughWeight {
  double share, target;
  uint64_t of;  // 0: of all tokens
  __device__ __forceinline__ void begin(uint64_t all) { target = share * static_cast<double>(of != 0 ? of : all); }
  __device__ __forceinline__ bool operator()(uint64_t count, uint64_t weight) const {
    return count > 0 && static_cast<double>(weight) >= target;
  }
};

// Adds the warp's weights to the bins that their lanes name; a lane without one names a negative bin.
__device__ __forceinline__ void add_to_bins(DrawShared& shared, int bin, uint32_t weight, int lane) {
  if (!__any_sync(~0u, bin >= 0)) return;
  const uint32_t peers = __match_any_sync(~0u, bin);
  // Halves, so that 32 of them fit in 32 bits.
  const uint32_t low = __reduce_add_sync(peers, weight & 0xFFFFu), high = __reduce_add_sync(peers, weight >> 16);
  if (bin < 0 || lane != __ffs(static_cast<int>(peers)) - 1) return;
  atomicAdd(&shared.bin_tokens[bin], static_cast<uint32_t>(__popc(peers)));
  atomicAdd(&shared.bin_weight[bin], (static_cast<unsigned long long>(high) << 16) + low);
}

// By the first warp of rank 0: the highest bin with which the prefix is enough; shared.found.
template <class Enough>
__device__ void find_bin(DrawShared& shared, Enough& enough, bool first) {
  constexpr int kEach = kBins / 32;
  const int lane = static_cast<int>(threadIdx.x), top = kBins - 1 - lane * kEach;
  uint32_t tokens = 0;
  uint64_t weight = 0;
  for (int i = 0; i < kEach; ++i) {
    tokens += shared.bin_tokens[top - i];
    weight += shared.bin_weight[top - i];
  }
  uint32_t tokens_before = tokens;
  uint64_t weight_before = weight;
  for (int step = 1; step < 32; step *= 2) {
    const uint32_t t = __shfl_up_sync(~0u, tokens_before, step);
    const uint64_t w = __shfl_up_sync(~0u, weight_before, step);
    if (lane >= step) {
      tokens_before += t;
      weight_before += w;
    }
  }
  const uint64_t all = __shfl_sync(~0u, weight_before, 31);
  if (first) {
    enough.begin(all);
    if (lane == 0) shared.found = {-1, 0, 0, 0, all};
    __syncwarp();
  }
  // Of what is heavier than these bins, and of heavier bins.
  uint64_t above_tokens = shared.found.above_tokens + tokens_before - tokens;
  uint64_t above_weight = (first ? 0 : shared.found.above_weight) + weight_before - weight;
  int hit = -1;
  for (int i = 0; i < kEach && hit < 0; ++i) {
    const uint64_t t = above_tokens + shared.bin_tokens[top - i], w = above_weight + shared.bin_weight[top - i];
    if (enough(t, w)) {
      hit = top - i;
    } else {
      above_tokens = t;
      above_weight = w;
    }
  }
  const uint32_t hits = __ballot_sync(~0u, hit >= 0);
  __syncwarp();  // all have read shared.found; a vote orders no memory
  if (hits != 0 && lane == __ffs(static_cast<int>(hits)) - 1)
    shared.found = {hit, shared.bin_tokens[hit], shared.bin_weight[hit], above_tokens, above_weight};
}

// A radix search for the weight at which the prefix ends: by its highest bit, then 8 bits at a time, until it is one token or
// one weight. All threads of the cluster; the same in each.
template <class Enough>
__device__ Prefix find_prefix(DrawShared& shared, const uint32_t* weights, const Part& part, Enough enough) {
  cg::cluster_group cluster = cg::this_cluster();
  const bool chooses = cluster.block_rank() == 0 && threadIdx.x < 32;
  const int lane = static_cast<int>(threadIdx.x & 31), rounds = (part.count + kDrawThreads - 1) / kDrawThreads;
  uint32_t low = 0;
  // The range [low, low + 2^bits) is looked at in bins of 2^shift; bits -1: all, by highest bit.
  int bits = -1, shift = 0;
  Found found;
  do {
    for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kDrawThreads) {
      shared.bin_tokens[i] = 0;
      shared.bin_weight[i] = 0;
    }
    cluster.sync();
    for (int round = 0; round < rounds; ++round) {
      const int i = round * kDrawThreads + static_cast<int>(threadIdx.x);
      const uint32_t w = i < part.count ? weights[i] : 0u;
      int bin = -1;
      if (bits < 0) {
        bin = w == 0 ? -1 : 32 - __clz(static_cast<int>(w));
      } else if (w >= low && (static_cast<uint64_t>(w - low) >> bits) == 0) {
        bin = static_cast<int>((w - low) >> shift);
      }
      add_to_bins(shared, bin, w, lane);
    }
    __syncthreads();
    if (cluster.block_rank() != 0) {
      for (int i = static_cast<int>(threadIdx.x); i < kBins; i += kDrawThreads) {
        if (shared.bin_tokens[i] == 0) continue;
        atomicAdd(cluster.map_shared_rank(&shared.bin_tokens[i], 0), shared.bin_tokens[i]);
        atomicAdd(cluster.map_shared_rank(&shared.bin_weight[i], 0), shared.bin_weight[i]);
      }
    }
    cluster.sync();
    if (chooses) find_bin(shared, enough, bits < 0);
    cluster.sync();
    found = *cluster.map_shared_rank(&shared.found, 0);
    if (found.bin < 0) return {0, 0, found.above_weight};  // all of them are not enough: all are kept
    low = bits < 0 ? 1u << (found.bin - 1) : low + (static_cast<uint32_t>(found.bin) << shift);
    bits = bits < 0 ? found.bin - 1 : shift;
    shift = max(0, bits - 8);
  } while (found.tokens > 1 && bits > 0);
  if (found.tokens == 1) return {low - 1, 0, found.above_weight + found.weight};
  // All of the bin weigh `low`. `enough` knows its target in the warp that chooses only.
  if (chooses && lane == 0) {
    uint32_t least = 1, most = found.tokens;
    while (least < most) {
      const uint32_t middle = least + (most - least) / 2;
      if (enough(found.above_tokens + middle, found.above_weight + static_cast<uint64_t>(middle) * low)) {
        most = middle;
      } else {
        least = middle + 1;
      }
    }
    shared.ties = least;
  }
  cluster.sync();
  const uint32_t ties = *cluster.map_shared_rank(&shared.ties, 0);
  const uint64_t weight = found.above_weight + static_cast<uint64_t>(ties) * low;
  if (ties == found.tokens) return {low - 1, 0, weight};
  return {low, ties, weight};
}

// The part's logits become their weights. Then top-k, top-p, and the draw among what they leave.
__device__ int truncated_token(DrawShared& shared, float* logits, const Part& part, const DrawRule& rule,
                               const Weigher& weigh, int vocab, uint64_t random) {
  auto* weights = reinterpret_cast<uint32_t*>(logits);
  for (int i = static_cast<int>(threadIdx.x); i < part.count; i += kDrawThreads) weights[i] = weigh(logits[i]);
  Prefix kept;
  if (rule.top_k > 0) kept = find_prefix(shared, weights, part, EnoughTokens{static_cast<uint64_t>(rule.top_k)});
  if (rule.top_p < 1.0f) {
    cg::this_cluster().sync();
    kept = find_prefix(shared, weights, part, EnoughWeight{static_cast<double>(rule.top_p), 0.0, kept.weight});
  }
  cg::this_cluster().sync();
  int last_tie = -1;
  if (kept.ties > 0) {
    last_tie = select_token(
        shared, part, vocab, [&](int i) { return weights[i] == kept.above ? 1u : 0u; },
        [&](uint64_t) { return static_cast<uint64_t>(kept.ties - 1); });
    cg::this_cluster().sync();
  }
  return select_token(
      shared, part, vocab,
      [&](int i) {
        const uint32_t w = weights[i];
        return w > kept.above || (w == kept.above && part.first + i <= last_tie) ? w : 0u;
      },
      [&](uint64_t total) { return __umul64hi(random, total); });
}

// The draw over integer weights.
__device__ int drawn_token(DrawShared& shared, float* logits, const Part& part, float most, const DrawRule& rule,
                           float temperature, int vocab, uint64_t position) {
  const Weigher weigh{temperature, most / temperature, static_cast<double>(rule.min_p) * 2147483648.0};
  const uint64_t random = philox_draw(rule.seed, rule.choice, position);
  if (rule.top_k > 0 || rule.top_p < 1.0f) return truncated_token(shared, logits, part, rule, weigh, vocab, random);
  return select_token(
      shared, part, vocab, [&](int i) { return weigh(logits[i]); },
      [&](uint64_t total) { return __umul64hi(random, total); });
}

__global__ void __launch_bounds__(kDrawThreads, 1) draw_kernel(const __grid_constant__ DrawRows a) {
  HB_FROM_SM90();
  extern __shared__ __align__(16) float logits[];
  __shared__ DrawShared shared;
  cg::cluster_group cluster = cg::this_cluster();
  const int row = blockIdx.y;
  const Part part = part_of(a.vocab, static_cast<int>(cluster.block_rank()));
  const DrawRule& rule = a.rules[row];
  // Rules, and the state that the step ahead left, are there before this step's first kernel.
  if (cluster.block_rank() == 0 && threadIdx.x == kDrawThreads - 1) prepare_policy(shared, rule);
  ptx::griddepcontrol_wait();
  const int source = a.rows != nullptr ? a.rows[row] : row;
  if (source < 0 || a.positions[source] < 0) return;  // all of the cluster
  const float most = load_and_max(a, shared, logits, part, row);
  const int position = a.positions[source];
  Drawn out;
  if (most == most) {
    const Choice choice = choose(shared, logits, part, most, rule, a.vocab);
    const bool is_greedy = choice.temperature <= kGreedyTemperature;
    out.token = is_greedy ? greedy(shared, logits, part, most)
                          : drawn_token(shared, logits, part, most, rule, choice.temperature, a.vocab,
                                        static_cast<uint64_t>(position) + 1);
    out.entropy = choice.entropy;
    out.temperature = is_greedy ? 0.0f : choice.temperature;
  }
  if (cluster.block_rank() == 0 && threadIdx.x == 0) report(a, shared, rule, row, source, position, out);
  cluster.sync();
}

__global__ void stamp_kernel(StepStamps* stamps) {
  if (stamps->count < stamps->capacity) stamps->begins[stamps->count] = ptx::globaltimer();
}

}  // namespace

Status stamp_begin(StepStamps* stamps, Launch how) {
  return launch(stamp_kernel, {dim3(1), 1}, {how.stream, false}, "stamp_begin", stamps);
}

Status draw_rows(const DrawRows& args, int rows, Launch how) {
  const int chunks = (args.vocab + kChunkLogits - 1) / kChunkLogits;
  const int each = (chunks + kClusterBlocks - 1) / kClusterBlocks;
  if (each > kMostChunks)
    return unsupported("a vocabulary of " + std::to_string(args.vocab) + " on a CUDA device, expected up to " +
                       std::to_string(kClusterBlocks * kMostChunks * kChunkLogits));
  if (!active_kernels().clusters) return draw_rows_portable(args, rows, how);
  const size_t shared = static_cast<size_t>(each) * kChunkLogits * sizeof(float);
  static const cudaError_t kReady = cudaFuncSetAttribute(draw_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                         kMostChunks * kChunkLogits * sizeof(float));
  HB_TRY(check(kReady, "shared memory of draw_rows"));
  return launch(draw_kernel, {dim3(kClusterBlocks, static_cast<unsigned>(rows)), kDrawThreads, shared, kClusterBlocks},
                how, "draw_rows", args);
}

}  // namespace halfbyte::cuda
