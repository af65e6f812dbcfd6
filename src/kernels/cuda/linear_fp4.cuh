// y = W x^ for FP4 weights and 1 to 16 columns x^: the kernel that decides how fast a 4-bit model decodes.
//
// Moves    N K 0.5625 bytes of weights once (MXFP4 too: its scales are stored for every 16); x^ of the block's own
//          k steps from L2; writes 1 to 8 slots x M x N FP32.
// Shapes   any N and K (the packer pads both to 128 with zero codes), M in {1, 2, 4, 8, 16}.
// Order    of the sums of an output, the same for every M: 8 partial sums by 16-block index mod 8, k steps ascending,
//          joined as ((0+1)+(2+3))+((4+5)+(6+7)); group g of kGroupsOfWarps has the k steps whose index in the run is g
//          modulo their number; the groups ascending; then the slots (one a run that meets the panel) ascending, which
//          the reader adds. A block's dot is exact for FP4 activations, FP32 of the tensor cores otherwise.
// How      132 thread blocks; each streams a contiguous run of k steps of 128-row panels by bulk copies into two rings
//          of shared memory (a producer warp each), from which the consumer warps decode to BF16 and multiply on the
//          tensor cores. When M < 8 the 8 columns of an MMA carry different K blocks, so that block scales cost 4 FMAs
//          for several blocks. A ring of weights is requested before the wait for the kernel ahead.
// Measured on an H200 (bench/ladder, 2026-11-29), alone, cold L2: median 1.075 and worst 1.178 times the plain read of
//          the bytes over 12 shapes at M = 1; M = 8 costs 1.07 times M = 1.
#pragma once

#include "kernels/cuda/merge.cuh"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/ring.cuh"
#include "kernels/cuda/rounding.cuh"
#include "kernels/cuda/step_layout.h"

namespace halfbyte::cuda {

inline constexpr int kGroupsOfWarps = 2;
// Rings of the compiled form: 2 x 7 stages of 9,216 bytes and x^; 5 in flight keep them arriving in order.
inline constexpr int kRingStages = 7;
inline constexpr int kRingInFlight = 5;

template <int kTokens_, int kStages_, int kInFlight_>
struct LinearConfig {
  static constexpr int kTokens = kTokens_;
  static constexpr int kStages = kStages_;      // k steps in a group's ring
  static constexpr int kInFlight = kInFlight_;  // of them requested and not yet arrived, once the kernel runs
  static constexpr int kTilesPerWarp = kTokens <= 2 ? 2 : 1;
  static constexpr int kTileWarps = kPanelTiles / kTilesPerWarp;  // consumer warps of a group
  // M = 16 needs more registers than a thread's share: the producers' warp group hands some over.
  static constexpr int kConsumerRegisters = kTokens == 16 ? 112 : 0;
  static constexpr int kProducerRegisters = 24;
  static constexpr int kProducerWarps = kConsumerRegisters != 0 ? 4 : kGroupsOfWarps;
  static constexpr int kWarps = kProducerWarps + kGroupsOfWarps * kTileWarps;
  static constexpr int kThreads = kWarps * 32;

  static constexpr int kColumns = kTokens < 8 ? kTokens : 8;  // columns of one MMA that are different tokens
  static constexpr int kColumnTiles = kTokens < 8 ? 1 : kTokens / 8;
  static constexpr int kBlocksPerTile = 8 / kColumns;                  // K blocks side by side in the 8 columns
  static constexpr int kAccumulators = kColumns;                       // tiles of sums a column tile
  static constexpr int kValues = kTokens == 1 ? 2 : 4 * kColumnTiles;  // a lane's results once the lanes are joined

  static constexpr int kXChunk = x_chunk_bytes(kTokens);
  static constexpr int kXRing = kStages * kPanelStepBytes;
  static constexpr int kFull = kXRing + kStages * kXChunk;
  static constexpr int kEmpty = kFull + kStages * 8;
  static constexpr int kReady = kEmpty + kStages * 8;  // what x^ is made of has arrived
  static constexpr int kGroupBytes = (kReady + 8 + 127) / 128 * 128;
  static constexpr int kReduceOffset = kGroupsOfWarps * kGroupBytes;
  static constexpr int kReduceFloats = 2 * (kGroupsOfWarps - 1) * kTileWarps * kTilesPerWarp * kValues * 32;
  static constexpr int kSharedBytes = kReduceOffset + kReduceFloats * 4;

  static_assert(kTileWarps + kGroupsOfWarps < 16, "named barriers");
  static_assert(kInFlight <= kStages);
  // What the consumers take must be in the block's own allotment (96 a thread at 20 warps), or the block hangs.
  static_assert(kConsumerRegisters == 0 ||
                (kWarps - kProducerWarps) * kConsumerRegisters + kProducerWarps * kProducerRegisters <= kWarps * 96);
  static_assert(kSharedBytes <= kMostSharedBytes, "shared memory of one thread block");
  // With room for two, blocks of the next linear that start early share some multiprocessors and leave others idle (a
  // decode step took 2.71 ms, against 2.23).
  static_assert(kSharedBytes > 114 * 1024, "one thread block a multiprocessor");
};

// v / divisor for v * divisor < 2^32.
struct FastDivision {
  uint32_t magic;  // ceil(2^32 / divisor); 0 for divisor 1
  static FastDivision by(int divisor) {
    return {divisor == 1 ? 0u : static_cast<uint32_t>((0x100000000ull + divisor - 1) / divisor)};
  }
  __device__ __forceinline__ int quotient(int v) const {
    return magic == 0 ? v : static_cast<int>(__umulhi(static_cast<uint32_t>(v), magic));
  }
};

struct LinearArgs {
  const uint8_t* weights;  // [index in the run][run][tile 0..7][step]
  const uint8_t* x;        // [k step][chunk]
  float* partial;          // [slot][M][rows]
  Split split;
  int k_steps;
  int rows;
  FastDivision by_k_steps;
  bool programmatic;
};
inline LinearArgs linear_args(const Linear& linear, const void* x, float* partial, const Launch& how) {
  return {linear.weights,
          static_cast<const uint8_t*>(x),
          partial,
          Split::of(linear.rows / kPanelRows * linear.k_steps, linear.runs),
          linear.k_steps,
          linear.rows,
          FastDivision::by(linear.k_steps),
          how.programmatic};
}

// A place in a ring.
template <int kStages>
struct RingPlace {
  int stage;
  uint32_t parity;
  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// The ring of one group, filled by one thread. index: of the group's next k step in the run; k: the same in its panel.
// kOwnX: the consumers make x^; else it comes with the weights.
template <class Config, bool kOwnX>
struct RingProducer {
  const LinearArgs& args;
  uint32_t base;
  int count;
  int k;
  static constexpr uint32_t kPaceCycles = 1800;  // 2 x 9,216 bytes a multiprocessor: 60% of what the memory delivers

  __device__ __forceinline__ void init(int offset, int arrivals) const {
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) ptx::mbarrier_init(base + offset + 8 * s, arrivals);
    ptx::fence_mbarrier_init();
  }
  __device__ __forceinline__ void expect(int stage) const {
    ptx::mbarrier_arrive_expect_tx(base + Config::kFull + 8 * stage, kPanelStepBytes + (kOwnX ? 0 : Config::kXChunk));
  }
  __device__ __forceinline__ void send_x(int stage) {
    ptx::cp_async_bulk(base + Config::kXRing + stage * Config::kXChunk,
                       args.x + static_cast<size_t>(k) * Config::kXChunk, Config::kXChunk,
                       base + Config::kFull + 8 * stage);
    k += kGroupsOfWarps;
    while (k >= args.k_steps) k -= args.k_steps;
  }
  __device__ __forceinline__ void send_weights(int stage, int index) const {
    const uint8_t* from = args.weights + (static_cast<size_t>(index) * gridDim.x + blockIdx.x) * kPanelStepBytes;
    ptx::cp_async_bulk_hint(base + stage * kPanelStepBytes, from, kPanelStepBytes, base + Config::kFull + 8 * stage,
                            ptx::createpolicy_evict_first());
  }

  // Before the block's consumers start. The first request goes ahead of half of the barriers.
  __device__ __forceinline__ void begin(int group) {
    init(Config::kFull, 1);
    if (group < count) {
      expect(0);
      send_weights(0, group);
    }
    init(Config::kEmpty, Config::kTileWarps * kWarpArrivals);
    if constexpr (kOwnX) {
      ptx::mbarrier_init(base + Config::kReady, 1);
      ptx::fence_mbarrier_init();
    }
  }

  // Loops stay rolled: a block starts with a cold instruction cache.
  __device__ __forceinline__ void run(int group) {
    int index = group + kGroupsOfWarps;
    int sent = group < count ? 1 : 0;
    // Until x^ is there, requests go out slower than the memory could serve them: the row operation ahead reads and
    // writes through the same queues, and all of the device waits for it. Without a pace a decode step took 5% more.
    const uint32_t signal = base + (kOwnX ? Config::kReady : Config::kFull);
    uint32_t last = ptx::clock32();
#pragma unroll 1
    for (; sent < Config::kStages && index < count; ++sent, index += kGroupsOfWarps) {
      while (ptx::clock32() - last < kPaceCycles && !ptx::mbarrier_test_wait(signal, 0)) {
      }
      last = ptx::clock32();
      expect(sent);
      send_weights(sent, index);
    }
    if (!kOwnX) {
      ptx::griddepcontrol_wait();
      k += sent * kGroupsOfWarps;  // a consumer warp sends x^ of these
      while (k >= args.k_steps) k -= args.k_steps;
    }
    RingPlace<Config::kStages> place{0, 0}, behind{Config::kStages - Config::kInFlight, 0};
#pragma unroll 1
    for (; index < count; index += kGroupsOfWarps) {
      ptx::mbarrier_wait(base + Config::kEmpty + 8 * place.stage, place.parity);
      ptx::mbarrier_wait(base + Config::kFull + 8 * behind.stage, behind.parity);
      expect(place.stage);
      if (!kOwnX) send_x(place.stage);
      send_weights(place.stage, index);
      place.advance();
      behind.advance();
    }
    ptx::griddepcontrol_launch_dependents();  // not before the last request: a kernel that comes early takes bandwidth
  }
};

// The A operand of one k16 step.
__device__ __forceinline__ void decode_word(uint32_t (&a)[4], uint32_t w) {
  a[0] = ptx::xor_and(w, w << 2, kPairMask);
  a[1] = ptx::xor_and(w, w << 6, kPairMask);
  a[2] = ptx::xor_and(w, rotate_left(w, 12), kPairMask);
  a[3] = rotate_left(w, 24) & kPairMask;
}

// Byte `kIndex` of four scale bytes as FP32 times 2^kScaleExponent.
template <int kIndex>
__device__ __forceinline__ float scale_of(uint32_t bytes) {
  const uint32_t shifted = kIndex == 0   ? bytes << 20
                           : kIndex == 1 ? bytes << 12
                           : kIndex == 2 ? bytes << 4
                                         : bytes >> 4;
  return __uint_as_float(ptx::and_or(shifted, kScaleMask, kScaleBias));
}

// What a lane needs to find its operands in a stage.
template <class Config>
struct StageLane {
  static constexpr int kTokens = Config::kTokens;
  static constexpr int kXRegisters = kTokens < 8 ? 4 : 1;

  uint32_t weights;         // offset of this lane's first 16 bytes in a stage
  uint32_t scales;          // offset of its scale bytes
  uint32_t x[kXRegisters];  // offsets of the rows that it gives to ldmatrix, by pair of blocks
  uint32_t scale_factor;    // M = 2 and 4: power of two that brings its byte to the exponent

  __device__ __forceinline__ StageLane(int tile, int lane) {
    const int g = lane >> 2;
    const int t = lane & 3;
    const uint32_t step = tile * kStepBytes;
    weights = step + lane * 16;
    scales = step + kCodeBytes + (kTokens == 1 ? lane * 4 : kTokens == 2 ? g * 16 + (t >> 1) * 4 : g * 16);
    scale_factor = ((kTokens == 2 ? t & 1 : t >> 1) != 0) ? 1u << 12 : 1u << 20;
    // ldmatrix: lanes 8 i .. 8 i + 7 give the rows (columns of B) of matrix i; matrices 0, 1 are the halves of block
    // 2 q, 2, 3 of 2 q + 1.
    const int half = (lane >> 3) & 1;
    const int odd = lane >> 4;
    const int column = (lane & 7) % Config::kColumns;
    const int place = (lane & 7) / Config::kColumns;  // which of the blocks side by side this column carries
#pragma unroll
    for (int q = 0; q < kXRegisters; ++q) {
      const int block = 2 * q + odd;
      const bool carried = block % Config::kBlocksPerTile == place;
      const uint32_t data = ((block * 2 + half) * kTokens + column) * 16;
      // Zeros for the other columns, in banks that the data of this phase does not use.
      const uint32_t zeros = kTokens * kStepK * 2 + (kTokens == 1   ? (1 - half) * 16
                                                     : kTokens == 2 ? 32 - 32 * half
                                                                    : 64 - 64 * half);
      x[q] = carried ? data : zeros;
      asm volatile("" : "+r"(x[q]));  // keep: the compiler would compute the offsets again in every step
    }
    asm volatile("" : "+r"(weights), "+r"(scales), "+r"(scale_factor));
  }
};

template <class Config>
using Sums = float[Config::kTilesPerWarp][Config::kColumnTiles][Config::kAccumulators][4];

// The scales of a tile's step as a lane reads them: 1, 2 or 4 words.
template <class Config>
struct StepScales {
  static constexpr int kWords = Config::kTokens == 1 ? 1 : Config::kTokens == 2 ? 2 : 4;
  uint32_t words[kWords];

  __device__ __forceinline__ void load(uint32_t address) {
    if constexpr (kWords == 4) {
      const uint4 v = ptx::lds_v4(address);
      words[0] = v.x;
      words[1] = v.y;
      words[2] = v.z;
      words[3] = v.w;
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) words[i] = ptx::lds(address + 8 * i);
    }
  }

  // Of this lane's two columns for rows g (low) and g + 8 (high).
  struct Four {
    float low0, low1, high0, high1;
  };
  template <int kGroup>
  __device__ __forceinline__ Four of(uint32_t factor) const {
    if constexpr (Config::kTokens == 1) {
      return {scale_of<0>(words[0]), scale_of<1>(words[0]), scale_of<2>(words[0]), scale_of<3>(words[0])};
    } else if constexpr (Config::kTokens < 8) {
      const float low = __uint_as_float(ptx::and_or(words[kGroup] * factor, kScaleMask, kScaleBias));
      const float high = __uint_as_float(ptx::and_or((words[kGroup] >> 16) * factor, kScaleMask, kScaleBias));
      return {low, low, high, high};
    } else {
      const float low = scale_of<kGroup & 1>(words[kGroup >> 1]);
      const float high = scale_of<2 + (kGroup & 1)>(words[kGroup >> 1]);
      return {low, low, high, high};
    }
  }
};

// Block kBlockIndex of a step, one row tile: its MMA, and after the last block of an accumulator tile the scales.
template <class Config, int kBlockIndex>
__device__ __forceinline__ void block_of_step(float (&sums)[Config::kColumnTiles][Config::kAccumulators][4],
                                              float (&c)[Config::kColumnTiles][4], uint32_t word,
                                              const uint32_t (&b)[Config::kColumnTiles][4],
                                              const StepScales<Config>& scales, uint32_t factor) {
  uint32_t a[4];
  decode_word(a, word);
  constexpr int kHalf = 2 * (kBlockIndex % 2);
#pragma unroll
  for (int n = 0; n < Config::kColumnTiles; ++n) {
    if constexpr (kBlockIndex % Config::kBlocksPerTile == 0) {
      ptx::mma_m16n8k16_bf16_from_zero(c[n], a, b[n][kHalf], b[n][kHalf + 1]);
    } else {
      ptx::mma_m16n8k16_bf16(c[n], a[0], a[1], a[2], a[3], b[n][kHalf], b[n][kHalf + 1]);
    }
  }
  if constexpr ((kBlockIndex + 1) % Config::kBlocksPerTile == 0) {
    constexpr int kGroup = kBlockIndex / Config::kBlocksPerTile;
    const auto s = scales.template of<kGroup>(factor);
#pragma unroll
    for (int n = 0; n < Config::kColumnTiles; ++n) {
      float(&sum)[4] = sums[n][kGroup];
      sum[0] = fmaf(c[n][0], s.low0, sum[0]);
      sum[1] = fmaf(c[n][1], s.low1, sum[1]);
      sum[2] = fmaf(c[n][2], s.high0, sum[2]);
      sum[3] = fmaf(c[n][3], s.high1, sum[3]);
    }
  }
}

// One k step of kTilesPerWarp row tiles.
template <class Config>
__device__ __forceinline__ void multiply_step(Sums<Config>& sums, uint32_t stage, uint32_t x_stage,
                                              const StageLane<Config>& lane) {
  constexpr int kTiles = Config::kTilesPerWarp;
  uint32_t words[kTiles][8];
  StepScales<Config> scales[kTiles];
#pragma unroll
  for (int i = 0; i < kTiles; ++i) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const uint4 v = ptx::lds_v4(stage + lane.weights + i * kStepBytes + h * 512);
      words[i][4 * h] = v.x;
      words[i][4 * h + 1] = v.y;
      words[i][4 * h + 2] = v.z;
      words[i][4 * h + 3] = v.w;
    }
    scales[i].load(stage + lane.scales + i * kStepBytes);
  }
  float c[kTiles][Config::kColumnTiles][4];
  const auto pair = [&]<int kPair>() {
    uint32_t b[Config::kColumnTiles][4];
#pragma unroll
    for (int n = 0; n < Config::kColumnTiles; ++n) {
      ptx::ldmatrix_x4(b[n], Config::kTokens < 8 ? x_stage + lane.x[Config::kTokens < 8 ? kPair : 0]
                                                 : x_stage + lane.x[0] + kPair * 64 * Config::kTokens + n * 128);
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      block_of_step<Config, 2 * kPair>(sums[i], c[i], words[i][2 * kPair], b, scales[i], lane.scale_factor);
      block_of_step<Config, 2 * kPair + 1>(sums[i], c[i], words[i][2 * kPair + 1], b, scales[i], lane.scale_factor);
    }
  };
  pair.template operator()<0>();
  pair.template operator()<1>();
  pair.template operator()<2>();
  pair.template operator()<3>();
}

// Joins the 8 partial sums. Lane (g, t) ends with rows g and g + 8 of its columns.
template <class Config>
__device__ __forceinline__ void join(float (&value)[Config::kValues],
                                     const float (&sums)[Config::kColumnTiles][Config::kAccumulators][4]) {
  constexpr int kTokens = Config::kTokens;
  auto across = [](float v, int mask) { return v + __shfl_xor_sync(~0u, v, mask); };
  if constexpr (kTokens == 1) {
    value[0] = across(across(sums[0][0][0] + sums[0][0][1], 1), 2);
    value[1] = across(across(sums[0][0][2] + sums[0][0][3], 1), 2);
  } else {
#pragma unroll
    for (int n = 0; n < Config::kColumnTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float r[Config::kAccumulators];
#pragma unroll
        for (int group = 0; group < Config::kAccumulators; ++group) {
          r[group] = sums[n][group][e];
          if constexpr (kTokens == 2) r[group] = across(across(r[group], 1), 2);
          if constexpr (kTokens == 4) r[group] = across(r[group], 2);
        }
        float sum = r[0] + r[1];
        if constexpr (kTokens >= 4) sum = sum + (r[2] + r[3]);
        if constexpr (kTokens >= 8) sum = sum + ((r[4] + r[5]) + (r[6] + r[7]));
        value[4 * n + e] = sum;
      }
    }
  }
}

// Where x^ comes from. GivenX: a row operation wrote it.
struct GivenX {
  static constexpr bool kOwn = false;
};

// The others (kOwn): the consumer warps make x^ of the k steps of their thread block's run, and round their share as the
// whole row is rounded. `ready` is told when what they read first has arrived.
struct OwnShare {
  uint8_t* chunks;  // where x^ goes, a k step each
  int first_k;      // the run's first k step
  int steps;        // of the row that the run needs
  int group, tile_warp, lane;
  uint32_t ready;  // barrier of the group

  __device__ __forceinline__ int step(int i, int k_steps) const {
    int at = first_k + i;
    while (at >= k_steps) at -= k_steps;
    return at;
  }
  __device__ __forceinline__ void arrived() const {
    if (tile_warp == 0 && lane == 0) ptx::mbarrier_arrive(ready);
  }
  template <class Config>
  __device__ __forceinline__ void put(int i, int m, uint2 bits) const {
    uint8_t* chunk = chunks + i * Config::kXChunk;
    *reinterpret_cast<uint2*>(chunk + x_offset(Config::kTokens, m, lane * kValuesPerThread)) = bits;
    if (m == 0) *reinterpret_cast<uint32_t*>(chunk + Config::kTokens * kStepK * 2 + lane * 4) = 0;
  }
};

// A row operation left the row open.
struct OpenX {
  static constexpr bool kOwn = true;
  RowOutput out;
  int k;
  bool norm;  // of which the factor is still to come
  float eps;
};

// It is the merge of one row's parts of attention, in a mode that does not look at the whole row.
struct MergeX {
  static constexpr bool kOwn = true;
  MergeRows rows;
};

// Makes x^ before a group multiplies k step i of the run, the group's n-th: nothing to do.
template <class Config, class Source>
struct XMaker {
  __device__ __forceinline__ XMaker(const Source&, const OwnShare&, int) {}
  __device__ __forceinline__ void before(int, int) {}
};

// All at once: a k step a warp.
template <class Config>
struct XMaker<Config, MergeX> {
  static_assert(Config::kTokens == 1);

  __device__ __forceinline__ XMaker(const MergeX& source, const OwnShare& share, int k_steps) {
    constexpr int kWarps = kGroupsOfWarps * Config::kTileWarps;
    constexpr int kMadeBarrier = 1 + Config::kTileWarps + kGroupsOfWarps;
    const MergeRows& rows = source.rows;
    const RowRounding rounding(rows.out, 0.0f);
    const int position = rows.positions[0];
    ptx::griddepcontrol_wait();
    const int first = share.group * Config::kTileWarps + share.tile_warp;
#pragma unroll 1
    for (int i = first; i < share.steps; i += kWarps) {
      const int element = share.step(i, k_steps) * kStepK + share.lane * kValuesPerThread;
      float v[4] = {};
      if (position >= 0) merge_parts(rows, 0, element, position, v);
      share.put<Config>(i, 0, rounding.bits(v));
      if (blockIdx.x == 0 && i == 0 && share.lane == 0) rows.out.x_scale[0] = rounding.scale();
      if (i == first) share.arrived();
    }
    if (first >= share.steps) share.arrived();
    ptx::bar_sync(kMadeBarrier, kWarps * 32);
  }
  __device__ __forceinline__ void before(int, int) {}
};

// One row, as the run goes on, each group its own k steps, a few ahead: the first are wanted at once, and for the others
// there is time while weights are on their way. Needs a run that does not go round K with the groups' k steps swapped
// (opens).
template <class Config>
struct XMaker<Config, OpenX> {
  static_assert(Config::kTokens == 1);

  __device__ __forceinline__ XMaker(const OpenX& source, const OwnShare& from, int steps_of_row)
      : share(from), k_steps(steps_of_row), next(from.group + from.tile_warp * kGroupsOfWarps) {
    uint8_t* row = open_row(source.out.x, source.k);
    values = reinterpret_cast<const float4*>(row) + share.lane;
    ptx::griddepcontrol_wait();
    load();
    const RowPart whole = join_parts(k_steps, [parts = open_parts(row, source.k)](int step) {
      const float2 part = __ldcg(reinterpret_cast<const float2*>(parts) + step);
      return RowPart{part.x, part.y};
    });
    factor = source.norm ? norm_factor(whole.squares, source.k, source.eps) : 1.0f;
    rounding = RowRounding(source.out, source.norm ? whole.amax * factor : whole.amax);
    if (blockIdx.x == 0 && next == 0 && share.lane == 0) source.out.x_scale[0] = rounding.scale();
    share.arrived();
  }
  __device__ __forceinline__ void before(int i, int n) {
    constexpr int kBarrier = 1 + Config::kTileWarps;  // + group
    if (i >= share.steps || n % Config::kTileWarps != 0) return;
    if (next < share.steps) {
      const float x[4] = {v.x * factor, v.y * factor, v.z * factor, v.w * factor};
      share.put<Config>(next, 0, rounding.bits(x));
    }
    next += Config::kTileWarps * kGroupsOfWarps;
    load();
    ptx::bar_sync(kBarrier + share.group, Config::kTileWarps * 32);
  }

 private:
  __device__ __forceinline__ void load() {
    if (next < share.steps) v = __ldcg(values + share.step(next, k_steps) * 32);
  }

  const OwnShare& share;
  int k_steps;
  int next;  // index in the run of the warp's next k step
  const float4* values;
  float4 v;
  float factor;
  RowRounding rounding;
};

// Group 0 adds the other groups' sums in order. Two buffers (by piece), so that one barrier a piece is enough.
template <class Config>
__device__ __forceinline__ void add_groups(float (&value)[Config::kTilesPerWarp][Config::kValues], float* reduce,
                                           int group, int tile_warp, int lane) {
  constexpr int kPerWarp = Config::kTilesPerWarp * Config::kValues * 32;
  if (group != 0) {
    float* mine = reduce + ((group - 1) * Config::kTileWarps + tile_warp) * kPerWarp + lane;
#pragma unroll
    for (int t = 0; t < Config::kTilesPerWarp; ++t) {
#pragma unroll
      for (int v = 0; v < Config::kValues; ++v) mine[(t * Config::kValues + v) * 32] = value[t][v];
    }
  }
  ptx::bar_sync(1 + tile_warp, kGroupsOfWarps * 32);
  if (group != 0) return;
#pragma unroll
  for (int other = 1; other < kGroupsOfWarps; ++other) {
    const float* theirs = reduce + ((other - 1) * Config::kTileWarps + tile_warp) * kPerWarp + lane;
#pragma unroll
    for (int t = 0; t < Config::kTilesPerWarp; ++t) {
#pragma unroll
      for (int v = 0; v < Config::kValues; ++v) value[t][v] += theirs[(t * Config::kValues + v) * 32];
    }
  }
}

// Writes a warp's tiles of one slot.
template <class Config>
__device__ __forceinline__ void store_slot(float* partial, const float (&value)[Config::kTilesPerWarp][Config::kValues],
                                           int slot, int first_row, int rows, int lane) {
  const int g = lane >> 2;
  const int t = lane & 3;
  constexpr int kHolders = Config::kTokens == 4 ? 2 : Config::kTokens < 4 ? 1 : 4;  // lanes t that hold columns
  if (t >= kHolders) return;
#pragma unroll
  for (int i = 0; i < Config::kTilesPerWarp; ++i) {
    const int row = first_row + i * kTileRows + g;
    if constexpr (Config::kTokens == 1) {
      float* out = partial + static_cast<size_t>(slot) * rows + row;
      out[0] = value[i][0] * kUnscale;
      out[8] = value[i][1] * kUnscale;
    } else {
#pragma unroll
      for (int n = 0; n < Config::kColumnTiles; ++n) {
        float* out = partial + (static_cast<size_t>(slot) * Config::kTokens + n * 8 + 2 * t) * rows + row;
        out[0] = value[i][4 * n] * kUnscale;
        out[rows] = value[i][4 * n + 1] * kUnscale;
        out[8] = value[i][4 * n + 2] * kUnscale;
        out[rows + 8] = value[i][4 * n + 3] * kUnscale;
      }
    }
  }
}

// x^ of the k steps that the producer asks for ahead of it: one ring.
template <class Config>
__device__ __forceinline__ void send_early_x(const LinearArgs& args, uint32_t base, int group, int count, int first_k) {
  ptx::griddepcontrol_wait();
  int k = first_k + group;
#pragma unroll 1
  for (int s = 0, i = group; s < Config::kStages && i < count; ++s, i += kGroupsOfWarps, k += kGroupsOfWarps) {
    while (k >= args.k_steps) k -= args.k_steps;
    ptx::cp_async_bulk(base + Config::kXRing + s * Config::kXChunk, args.x + static_cast<size_t>(k) * Config::kXChunk,
                       Config::kXChunk, base + Config::kFull + 8 * s);
  }
}

// The consumer warps' part: the pieces of the run that lie in one panel each.
template <class Config, bool kOwnX, class Maker>
__device__ __forceinline__ void consume(const LinearArgs& args, Maker& maker, uint32_t base, uint32_t own_x,
                                        float* reduce, int group, int tile_warp, int lane, int count, int first_panel,
                                        int first_k) {
  constexpr int kTiles = Config::kTilesPerWarp;
  const StageLane<Config> place(tile_warp * kTiles, lane);
  RingPlace<Config::kStages> at{0, 0};
  int slot = blockIdx.x - args.split.owner(first_panel * args.k_steps);
  int i = group;      // index in the run of this group's next k step
  int chunk = group;  // the same modulo k_steps
  int made = 0;       // k steps that the group has gone through
  int piece_end = min(args.k_steps - first_k, count);
#pragma unroll 1
  for (int piece = 0;; ++piece) {
    Sums<Config> sums = {};
#pragma unroll 1
    for (; i < piece_end; i += kGroupsOfWarps) {
      if constexpr (kOwnX) maker.before(i, made++);
      ptx::mbarrier_wait(base + Config::kFull + 8 * at.stage, at.parity);
      if constexpr (kOwnX) {
        while (chunk >= args.k_steps) chunk -= args.k_steps;
      }
      const uint32_t x = kOwnX ? own_x + chunk * Config::kXChunk : base + Config::kXRing + at.stage * Config::kXChunk;
      chunk += kGroupsOfWarps;
      multiply_step<Config>(sums, base + at.stage * kPanelStepBytes, x, place);
      __syncwarp();
      arrive_for_warp(base + Config::kEmpty + 8 * at.stage, lane);
      at.advance();
    }
    float value[kTiles][Config::kValues];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) join<Config>(value[t], sums[t]);
    add_groups<Config>(value, reduce + (piece & 1) * (Config::kReduceFloats / 2), group, tile_warp, lane);
    if (group == 0) {
      if (!kOwnX && args.programmatic && piece == 0)
        ptx::griddepcontrol_wait();  // an earlier kernel may still read the slots
      store_slot<Config>(args.partial, value, slot, (first_panel + piece) * kPanelRows + tile_warp * kTiles * kTileRows,
                         args.rows, lane);
    }
    if (piece_end == count) break;
    piece_end = min(piece_end + args.k_steps, count);
    slot = 0;
  }
}

// Up to 96 registers a thread, so that one row's blocks find room beside attention's (attention.cu).
template <class Config, class Source>
__global__ void __launch_bounds__(Config::kThreads, Config::kTokens <= 2 ? 2 : 1)
    linear_fp4(const __grid_constant__ LinearArgs args, const __grid_constant__ Source source) {
  HB_FROM_SM90();
  extern __shared__ __align__(128) uint8_t shared[];
  // Uniform by construction, so that the producer's addresses are uniform registers (mbarrier.init and the copies take
  // no others). The producers are the first warps: warps of a block start up to 400 cycles apart.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x >> 5), 0);
  const int lane = threadIdx.x & 31;
  const uint32_t ring = ptx::shared_address(shared);
  const int count = args.split.quotient + (blockIdx.x < args.split.remainder ? 1 : 0);
  const int begin = args.split.begin(blockIdx.x);
  const int first_panel = args.by_k_steps.quotient(begin);
  const int first_k = begin - first_panel * args.k_steps;
  constexpr int kGroupThreads = (Config::kTileWarps + 1) * 32;
  constexpr int kStartBarrier = 1 + Config::kTileWarps;  // + group
  if (__builtin_expect(warp < Config::kProducerWarps, 1)) {
    if constexpr (Config::kConsumerRegisters != 0) {
      ptx::setmaxnreg_dec<Config::kProducerRegisters>();
      if (warp >= kGroupsOfWarps) return;
    }
    int k = first_k + warp;
    while (k >= args.k_steps) k -= args.k_steps;
    RingProducer<Config, Source::kOwn> producer{args, ring + warp * Config::kGroupBytes, count, k};
    if (lane == 0) producer.begin(warp);
    __syncwarp();
    ptx::bar_arrive(kStartBarrier + warp, kGroupThreads);
    if (lane == 0) producer.run(warp);
    return;
  }
  if constexpr (Config::kConsumerRegisters != 0) ptx::setmaxnreg_inc<Config::kConsumerRegisters>();
  const int group = (warp - Config::kProducerWarps) / Config::kTileWarps;
  const int tile_warp = (warp - Config::kProducerWarps) % Config::kTileWarps;
  ptx::bar_sync(kStartBarrier + group, kGroupThreads);
  const uint32_t base = ring + group * Config::kGroupBytes;
  float* reduce = reinterpret_cast<float*>(shared + Config::kReduceOffset);
  if (!Source::kOwn && tile_warp == 0) {
    if (lane == 0) send_early_x<Config>(args, base, group, count, first_k);
    __syncwarp();
  }
  const OwnShare share{shared + Config::kSharedBytes, first_k, min(count, args.k_steps), group, tile_warp, lane,
                       base + Config::kReady};
  XMaker<Config, Source> maker(source, share, args.k_steps);
  consume<Config, Source::kOwn>(args, maker, base, ring + Config::kSharedBytes, reduce, group, tile_warp, lane, count,
                                first_panel, first_k);
}

}  // namespace halfbyte::cuda
