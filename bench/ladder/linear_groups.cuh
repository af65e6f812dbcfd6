// Step 9: every group of consumer warps has its own producer warp and its own ring; groups meet only to add their sums.
//   - Two rings of 6 keep more bytes in flight than one of 12: a stage is refilled as soon as its own group has read
//   it.
//   - x^ of a stage is sent just ahead of its weights and counted by the same barrier.
//   - No row tile is shared between warps of a group, so an output needs one join (shuffles) and, across groups, one
//   exchange.
//
// Moves   N K 0.5625 bytes of weights once; x^ of the block's own k steps from L2; writes slots x M x N FP32 partial
// sums. Shapes  N and K multiples of 128 (the packer pads), M in {1, 2, 4, 8, 16}. Order   of sums of one output, the
// same for every M: in a warp 8 partial sums by block index mod 8, k steps ascending, joined as
//         ((0+1)+(2+3))+((4+5)+(6+7)); group g of kGroupsOfWarps has the k steps whose index in the run is g modulo
//         kGroupsOfWarps; the groups ascending; then the slots (one a run that meets the panel) ascending, which the
//         reader adds.
#pragma once

#include "linear_bulk.cuh"

namespace halfbyte::ladder {

template <int kTokens_, int kTileWarps_, int kTilesPerWarp_, int kKWarps_, int kStages_, int kInFlight_,
          int kMinBlocks_, int kChains_ = 1, Part kPart_ = Part::kAll, int kConsumerRegisters_ = 0,
          bool kEvictFirst_ = false, bool kFinish_ = false>
struct GroupsConfig {
  using Base = RingConfig<kTokens_, kTileWarps_, kTilesPerWarp_, 1, 1, 1>;
  static constexpr int kTokens = kTokens_;
  static constexpr int kTileWarps =
      kTileWarps_;  // consumer warps of a group, side by side over the row tiles of a panel
  static constexpr int kTilesPerWarp = kTilesPerWarp_;  // row tiles of a warp
  static constexpr int kKWarps = kKWarps_;              // groups; they take the k steps of the run in turn
  static constexpr int kStages = kStages_;              // k steps in a group's ring
  static constexpr int kInFlight = kInFlight_;          // of them requested and not yet arrived
  static constexpr int kMinBlocks = kMinBlocks_;
  static constexpr int kChains = kChains_;
  static constexpr Part kPart = kPart_;
  static constexpr bool kEvictFirst = kEvictFirst_;  // hint on the weights' copies
  static constexpr bool kFinish = kFinish_;          // the last block of a panel adds its slots and writes y

  // Not 0: the producers' warp group (4 warps) hands registers to the consumers' warp groups.
  static constexpr int kConsumerRegisters = kConsumerRegisters_;
  static constexpr int kProducerRegisters = 24;
  static constexpr int kProducerWarps = kConsumerRegisters != 0 ? 4 : kKWarps;
  static constexpr int kWarps = kProducerWarps + kKWarps * kTileWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kGroupThreads = (kTileWarps + 1) * 32;  // consumers of a group and their producer
  static constexpr int kStartBarrier = 1 + kTileWarps;         // + group
  static constexpr int kXChunk = Base::kXChunk;
  static constexpr int kXOffset = 0;
  static constexpr int kColumns = Base::kColumns;
  static constexpr int kColumnTiles = Base::kColumnTiles;
  static constexpr int kBlocksPerTile = Base::kBlocksPerTile;
  static constexpr int kGroups = Base::kGroups;
  static constexpr int kValues = Base::kValues;

  // A group's shared memory: weights, x^, full and empty barriers.
  static constexpr int kXRing = kStages * kPanelStepBytes;
  static constexpr int kFull = kXRing + kStages * kXChunk;
  static constexpr int kEmpty = kFull + kStages * 8;
  static constexpr int kGroupBytes = (kEmpty + kStages * 8 + 127) / 128 * 128;
  static constexpr int kReduceOffset = kKWarps * kGroupBytes;
  static constexpr int kReduceFloats = 2 * (kKWarps - 1) * kTileWarps * kTilesPerWarp * kValues * 32;
  static constexpr int kSharedBytes = kReduceOffset + kReduceFloats * 4;

  static_assert(kTileWarps * kTilesPerWarp == kPanelTiles, "the warps of a group must cover a panel");
  static_assert(kTileWarps + kKWarps < 16, "named barriers");
  static_assert(kInFlight <= kStages);
  // The registers that the consumers take must be in the block's own allotment (at most 96 a thread for 20 warps), or
  // the block hangs.
  static_assert(kConsumerRegisters == 0 ||
                (kWarps - kProducerWarps) * kConsumerRegisters + kProducerWarps * kProducerRegisters <= kWarps * 96);
  static_assert(kConsumerRegisters == 0 || (kKWarps <= 4 && kKWarps * kTileWarps % 4 == 0), "whole warp groups");
  static_assert(kSharedBytes <= 227 * 1024, "shared memory of one thread block");
};

struct GroupsArgs {
  const uint8_t* weights;  // [index in the run][run][tile 0..7][step]
  const uint8_t* x;        // [k step][chunk]
  float* partial;          // [slot][M][rows]
  Split split;
  int k_steps;
  int rows;
  FastDivision by_k_steps;
  bool programmatic;   // launched before the kernel ahead has ended: x^ and partial only after the dependency wait
  float* y = nullptr;  // kFinish: [M][rows]
  uint32_t* arrived = nullptr;  // kFinish: [panel][tile warp], zero before and after
  uint32_t* log;                // Part::kTimeline
};

// One thread: the ring of one group. index: of the group's next k step in the run; k: the same in its panel.
template <class Config>
struct GroupProducer {
  const GroupsArgs& args;
  uint32_t base;
  int count;
  int k;

  __device__ __forceinline__ void init_full() const {
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) ptx::mbarrier_init(base + Config::kFull + 8 * s, 1);
    ptx::fence_mbarrier_init();
  }
  __device__ __forceinline__ void init_empty() const {
#ifdef LADDER_ARRIVE_ALL
    constexpr int kReaders = Config::kTileWarps * 32;
#else
    constexpr int kReaders = Config::kTileWarps;
#endif
#pragma unroll
    for (int s = 0; s < Config::kStages; ++s) ptx::mbarrier_init(base + Config::kEmpty + 8 * s, kReaders);
    ptx::fence_mbarrier_init();
  }
  __device__ __forceinline__ void expect(int stage) const {
    ptx::mbarrier_arrive_expect_tx(base + Config::kFull + 8 * stage, kPanelStepBytes + Config::kXChunk);
  }
  __device__ __forceinline__ void send_x(int stage) const {
    ptx::cp_async_bulk(base + Config::kXRing + stage * Config::kXChunk,
                       args.x + static_cast<size_t>(k) * Config::kXChunk, Config::kXChunk,
                       base + Config::kFull + 8 * stage);
  }
  __device__ __forceinline__ void send_weights(int stage, int index) const {
    const uint8_t* from = args.weights + (static_cast<size_t>(index) * gridDim.x + blockIdx.x) * kPanelStepBytes;
    if constexpr (Config::kEvictFirst) {
      ptx::cp_async_bulk_hint(base + stage * kPanelStepBytes, from, kPanelStepBytes, base + Config::kFull + 8 * stage,
                              ptx::createpolicy_evict_first());
    } else {
      ptx::cp_async_bulk(base + stage * kPanelStepBytes, from, kPanelStepBytes, base + Config::kFull + 8 * stage);
    }
  }
  __device__ __forceinline__ void next_k() {
    k += Config::kKWarps;
    while (k >= args.k_steps) k -= args.k_steps;
  }

  // Before the block's consumers start. Weights do not depend on the kernel ahead. Loops stay rolled: a block starts
  // with a cold instruction cache.
  __device__ __forceinline__ void begin(int group) {
    init_full();
#pragma unroll 1
    for (int s = 0, index = group; s < Config::kInFlight && index < count; ++s, index += Config::kKWarps) {
      expect(s);
      send_weights(s, index);
      if (!args.programmatic) {
        send_x(s);
        next_k();
      }
    }
    init_empty();
  }

  __device__ __forceinline__ void run(int group) {
    int index = group + Config::kInFlight * Config::kKWarps;
    if (args.programmatic) {
      ptx::griddepcontrol_launch_dependents();
      ptx::griddepcontrol_wait();
#pragma unroll 1
      for (int s = 0, i = group; s < Config::kInFlight && i < count; ++s, i += Config::kKWarps) {
        send_x(s);
        next_k();
      }
    }
    RingPlace<Config::kStages, 1> place{Config::kInFlight % Config::kStages,
                                        Config::kInFlight == Config::kStages ? 0u : 1u};
    RingPlace<Config::kStages, 1> behind{0, 0};
    int sent = Config::kInFlight;
#pragma unroll 1
    for (; index < count; index += Config::kKWarps, ++sent) {
      if (sent >= Config::kStages) ptx::mbarrier_wait(base + Config::kEmpty + 8 * place.stage, place.parity);
      if (Config::kInFlight < Config::kStages)
        ptx::mbarrier_wait(base + Config::kFull + 8 * behind.stage, behind.parity);
      expect(place.stage);
      send_x(place.stage);
      send_weights(place.stage, index);
      next_k();
      place.advance();
      behind.advance();
    }
  }
};

// The warp that writes the last slot of its rows adds them all, in ascending order whichever warp it is. The counter goes back to zero.
template <class Config>
__device__ __forceinline__ void groups_finish(const GroupsArgs& args, int panel, int tile_warp, int lane) {
  const int first = panel * args.k_steps;
  const int slots = args.split.owner(first + args.k_steps - 1) - args.split.owner(first) + 1;
  __threadfence();
  __syncwarp();
  uint32_t* counter = args.arrived + panel * Config::kTileWarps + tile_warp;
  uint32_t before = 0;
  if (lane == 0) before = atomicAdd(counter, 1u);
  if (__shfl_sync(~0u, before, 0) != static_cast<uint32_t>(slots) - 1) return;
  __threadfence();
  if (lane == 0) *counter = 0;
  const size_t stride = static_cast<size_t>(Config::kTokens) * args.rows;
  constexpr int kRows = Config::kTilesPerWarp * kTileRows;
  const int first_row = panel * kPanelRows + tile_warp * kRows;
  for (int i = lane; i < kRows * Config::kTokens; i += 32) {
    const size_t at = static_cast<size_t>(i / kRows) * args.rows + first_row + i % kRows;
    float sum = __ldcg(args.partial + at);
#pragma unroll 4
    for (int s = 1; s < slots; ++s) sum += __ldcg(args.partial + s * stride + at);
    args.y[at] = sum;
  }
}

// A producer warp's part.
template <class Config>
__device__ __forceinline__ void groups_produce(const GroupsArgs& args, StreamLog<Config>& log, uint32_t ring, int warp,
                                               int lane, int count, int first_k) {
  if constexpr (Config::kConsumerRegisters != 0) {
    ptx::setmaxnreg_dec<Config::kProducerRegisters>();
    if (warp >= Config::kKWarps) return;
  }
  int k = first_k + warp;
  while (k >= args.k_steps) k -= args.k_steps;
  GroupProducer<Config> producer{args, ring + warp * Config::kGroupBytes, count, k};
  if (lane == 0) producer.begin(warp);
  __syncwarp();
  ptx::bar_arrive(Config::kStartBarrier + warp, Config::kGroupThreads);
  log.mark(lane);
  if (lane == 0) producer.run(warp);
  log.mark(lane);
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    linear_groups(const __grid_constant__ GroupsArgs args) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int kTiles = Config::kTilesPerWarp;
  constexpr int kKWarps = Config::kKWarps;
  // Uniform by construction, so that the producer's addresses are uniform registers (mbarrier.init and the copies take
  // no others: with a lane's value each costs a loop and a fence). The producers are the first warps: warps of a block
  // start up to 400 cycles apart.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x >> 5), 0);
  const int lane = threadIdx.x & 31;
  const uint32_t ring = ptx::shared_address(shared);
  StreamLog<Config> log{args.log + (blockIdx.x * Config::kWarps + warp) * 64};
  log.mark(lane);
  const int count = args.split.quotient + (blockIdx.x < args.split.remainder ? 1 : 0);
  const int begin = args.split.begin(blockIdx.x);
  const int first_panel = args.by_k_steps.quotient(begin);
  const int first_k = begin - first_panel * args.k_steps;
  if (__builtin_expect(warp < Config::kProducerWarps, 1)) {
    groups_produce<Config>(args, log, ring, warp, lane, count, first_k);
    return;
  }

  if constexpr (Config::kConsumerRegisters != 0) ptx::setmaxnreg_inc<Config::kConsumerRegisters>();
  const int group = (warp - Config::kProducerWarps) / Config::kTileWarps;
  const int tile_warp = (warp - Config::kProducerWarps) % Config::kTileWarps;
  const uint32_t base = ring + group * Config::kGroupBytes;
  const RingLane<Config> place(tile_warp * kTiles, 0, lane);
  RingPlace<Config::kStages, 1> at{0, 0};
  int slot = blockIdx.x - args.split.owner(first_panel * args.k_steps);
  ptx::bar_sync(Config::kStartBarrier + group, Config::kGroupThreads);
  log.mark(lane);

  int i = group;  // index in the run of this group's next k step
  int piece_end = min(args.k_steps - first_k, count);
#pragma unroll 1
  for (int piece = 0;; ++piece) {
    float acc[kTiles][Config::kColumnTiles][Config::kGroups][4] = {};
#pragma unroll 1
    for (; i < piece_end; i += kKWarps) {
      ptx::mbarrier_wait(base + Config::kFull + 8 * at.stage, at.parity);
      log.mark(lane);
      if constexpr (Config::kPart != Part::kCopyOnly) {
        ring_step<Config>(acc, base + at.stage * kPanelStepBytes, base + Config::kXRing + at.stage * Config::kXChunk,
                          place);
      }
#ifdef LADDER_ARRIVE_ALL
      // For racecheck, which does not see that the warp's reads are ordered before its one arrival by __syncwarp.
      ptx::mbarrier_arrive(base + Config::kEmpty + 8 * at.stage);
#else
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(base + Config::kEmpty + 8 * at.stage);
#endif
      at.advance();
      log.mark(lane);
    }
    float value[kTiles][Config::kValues];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) ring_join<Config>(value[t], acc[t]);
    add_groups<Config>(value, shared, piece, group, tile_warp, lane);
    if (group == 0) {
      if (args.programmatic && piece == 0)
        ptx::griddepcontrol_wait();  // the partial sums may still be read by an earlier kernel
      stream_store<Config>(args.partial, value, slot,
                           (first_panel + piece) * kPanelRows + tile_warp * kTiles * kTileRows, args.rows, lane);
      if constexpr (Config::kFinish) groups_finish<Config>(args, first_panel + piece, tile_warp, lane);
    }
    log.mark(lane);
    if (piece_end == count) break;
    piece_end = min(piece_end + args.k_steps, count);
    slot = 0;
  }
}

}  // namespace halfbyte::ladder
