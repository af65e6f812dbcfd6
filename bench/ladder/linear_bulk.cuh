// Step 8: what steps 3 to 7 taught, in one kernel.
//   - The producer is the first warp (warps of a block start up to 400 cycles apart); its lanes set the barriers up
//   side by side and send
//     the weights before the block's barrier.
//   - x^ has a ring of its own; the first round's part is one copy, sent ahead of the weights: behind them it waits for
//   the whole flood.
//   - kInFlight stages at most are in flight, or some SMs are served late and are left with all their arithmetic at the
//   end.
//   - Several row tiles a warp share one read of x^ (shared memory bandwidth) and one wait.
//
// Moves   N K 0.5625 bytes of weights once; x^ of the block's own k steps from L2; writes slots x M x N FP32 partial
// sums. Shapes  N and K multiples of 128 (the packer pads), M in {1, 2, 4, 8, 16}. Order   of sums of one output, the
// same for every M: in a warp 8 partial sums by block index mod 8, k steps ascending, joined as
//         ((0+1)+(2+3))+((4+5)+(6+7)); warp group i of kKWarps has the k steps whose index in the run is i modulo
//         kKWarps; the groups ascending; then the slots (one a run that meets the panel) ascending, which the reader
//         adds.
#pragma once

#include "linear_ring.cuh"
#include "linear_stream.cuh"

namespace halfbyte::ladder {

template <int kTokens_, int kTileWarps_, int kTilesPerWarp_, int kKWarps_, int kStages_, int kInFlight_,
          int kMinBlocks_, int kChains_ = 1, Part kPart_ = Part::kAll>
struct BulkConfig {
  using Base = RingConfig<kTokens_, kTileWarps_, kTilesPerWarp_, 1, 1, 1>;
  static constexpr int kTokens = kTokens_;
  static constexpr int kTileWarps = kTileWarps_;        // warps side by side over the row tiles of a panel
  static constexpr int kTilesPerWarp = kTilesPerWarp_;  // row tiles of a warp
  static constexpr int kKWarps = kKWarps_;              // groups of kTileWarps warps that take the k steps in turn
  static constexpr int kStages = kStages_;              // k steps in the ring
  static constexpr int kInFlight = kInFlight_;
  static constexpr int kMinBlocks = kMinBlocks_;
  static constexpr int kChains = kChains_;
  static constexpr Part kPart = kPart_;

  static constexpr int kConsumers = kTileWarps * kKWarps;
  static constexpr int kThreads = (kConsumers + 1) * 32;
  static constexpr int kXChunk = Base::kXChunk;
  static constexpr int kXOffset = 0;  // lane offsets into the x^ ring
  static constexpr int kColumns = Base::kColumns;
  static constexpr int kColumnTiles = Base::kColumnTiles;
  static constexpr int kBlocksPerTile = Base::kBlocksPerTile;
  static constexpr int kGroups = Base::kGroups;
  static constexpr int kValues = Base::kValues;

  static constexpr int kReduceFloats = 2 * (kKWarps - 1) * kTileWarps * kTilesPerWarp * kValues * 32;
  static constexpr int kXRingOffset = kStages * kPanelStepBytes;
  static constexpr int kBarrierOffset = kXRingOffset + kStages * kXChunk;
  static constexpr int kReduceOffset = kBarrierOffset + (kStages * 16 + 8 + 127) / 128 * 128;
  static constexpr int kSharedBytes = kReduceOffset + kReduceFloats * 4;

  static_assert(kTileWarps * kTilesPerWarp == kPanelTiles, "the warps of a group must cover a panel");
  static_assert(kStages <= 32, "a lane of the producer sets up a stage");
  static_assert(kInFlight <= kStages);
  // A stage belongs to one group: another group could pass a barrier whose phase before last has not even ended.
  static_assert(kStages % kKWarps == 0);
  static_assert(kSharedBytes <= 227 * 1024, "shared memory of one thread block");
};

// begin / divisor for begin * divisor < 2^32, with magic = ceil(2^32 / divisor) (0 for divisor 1).
struct FastDivision {
  uint32_t magic;
  static FastDivision by(int divisor) {
    return {divisor == 1 ? 0u : static_cast<uint32_t>((0x100000000ull + divisor - 1) / divisor)};
  }
  __device__ __forceinline__ int quotient(int v) const {
    return magic == 0 ? v : static_cast<int>(__umulhi(static_cast<uint32_t>(v), magic));
  }
};

// Named barrier of the start; the joins use 1 to kTileWarps.
inline constexpr int kBulkBarrier = 15;

struct BulkArgs {
  const uint8_t* weights;  // [index in the run][run][tile 0..7][step]
  const uint8_t* x;        // [k step][chunk]
  float* partial;          // [slot][M][rows]
  Split split;
  int k_steps;
  int rows;
  FastDivision by_k_steps;
  bool programmatic;  // launched before the kernel ahead has ended: x^ and partial only after the dependency wait
  uint32_t* log;      // Part::kTimeline
};

// Sends x^ of k steps k .. k + count - 1 (around the end of K) to the x^ ring's slots 0 .. count - 1; one thread.
template <class Config>
__device__ __forceinline__ void bulk_send_first_x(uint32_t x_ring, uint32_t barrier, const BulkArgs& args, int k,
                                                  int count) {
  ptx::mbarrier_arrive_expect_tx(barrier, count * Config::kXChunk);
  for (int done = 0; done < count;) {
    const int here = min(count - done, args.k_steps - k);
    ptx::cp_async_bulk(x_ring + done * Config::kXChunk, args.x + static_cast<size_t>(k) * Config::kXChunk,
                       here * Config::kXChunk, barrier);
    done += here;
    k = 0;
  }
}

template <class Config>
__device__ __forceinline__ void bulk_send_weights(uint32_t ring, uint32_t full, const BulkArgs& args, int i,
                                                  int stage) {
  ptx::cp_async_bulk(ring + stage * kPanelStepBytes,
                     args.weights + (static_cast<size_t>(i) * gridDim.x + blockIdx.x) * kPanelStepBytes,
                     kPanelStepBytes, full + 8 * stage);
}

// One thread. (A lane for each barrier costs 3,000 cycles: mbarrier.init takes a uniform address and fences.)
template <class Config>
__device__ __forceinline__ void bulk_init(uint32_t full, uint32_t empty, uint32_t first_x) {
#pragma unroll
  for (int s = 0; s < Config::kStages; ++s) {
    ptx::mbarrier_init(full + 8 * s, 1);
    ptx::mbarrier_init(empty + 8 * s, Config::kTileWarps);
  }
  ptx::mbarrier_init(first_x, 1);
  ptx::fence_mbarrier_init();
}

// The producer: one thread for the whole run. The loops stay rolled: a block starts with a cold instruction cache.
template <class Config>
__device__ __forceinline__ void bulk_produce(uint32_t ring, uint32_t full, uint32_t empty, uint32_t first_x,
                                             const BulkArgs& args, int count, int k) {
  constexpr int kStages = Config::kStages;
  const uint32_t x_ring = ring + Config::kXRingOffset;
  const int first = min(Config::kInFlight, count);
  if (!args.programmatic) bulk_send_first_x<Config>(x_ring, first_x, args, k, first);
#pragma unroll 1
  for (int i = 0; i < first; ++i) {
    ptx::mbarrier_arrive_expect_tx(full + 8 * i, kPanelStepBytes);
    bulk_send_weights<Config>(ring, full, args, i, i);
  }
  if (args.programmatic) {
    ptx::griddepcontrol_launch_dependents();
    ptx::griddepcontrol_wait();
    bulk_send_first_x<Config>(x_ring, first_x, args, k, first);
  }
  k += first;
  while (k >= args.k_steps) k -= args.k_steps;
  RingPlace<kStages, 1> place{Config::kInFlight % kStages, Config::kInFlight == kStages ? 0u : 1u};
  RingPlace<kStages, 1> behind{0, 0};  // kInFlight stages ago
#pragma unroll 1
  for (int i = first; i < count; ++i) {
    if (i >= kStages) ptx::mbarrier_wait(empty + 8 * place.stage, place.parity);
    if (Config::kInFlight < kStages) ptx::mbarrier_wait(full + 8 * behind.stage, behind.parity);
    ptx::mbarrier_arrive_expect_tx(full + 8 * place.stage, kPanelStepBytes + Config::kXChunk);
    ptx::cp_async_bulk(x_ring + place.stage * Config::kXChunk, args.x + static_cast<size_t>(k) * Config::kXChunk,
                       Config::kXChunk, full + 8 * place.stage);
    bulk_send_weights<Config>(ring, full, args, i, place.stage);
    place.advance();
    behind.advance();
    if (++k == args.k_steps) k = 0;
  }
}

// Group 0 adds the other groups' sums in order. Two buffers, so that one barrier a piece is enough.
template <class Config>
__device__ __forceinline__ void add_groups(float (&value)[Config::kTilesPerWarp][Config::kValues], uint8_t* shared,
                                           int piece, int group, int tile_warp, int lane) {
  if constexpr (Config::kKWarps > 1) {
    constexpr int kTiles = Config::kTilesPerWarp;
    constexpr int kPerWarp = kTiles * Config::kValues * 32;
    float* buffer =
        reinterpret_cast<float*>(shared + Config::kReduceOffset) + (piece & 1) * (Config::kReduceFloats / 2);
    if (group != 0) {
      float* mine = buffer + ((group - 1) * Config::kTileWarps + tile_warp) * kPerWarp + lane;
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
#pragma unroll
        for (int v = 0; v < Config::kValues; ++v) mine[(t * Config::kValues + v) * 32] = value[t][v];
      }
    }
    ptx::bar_sync(1 + tile_warp, Config::kKWarps * 32);
    if (group == 0) {
#pragma unroll
      for (int other = 1; other < Config::kKWarps; ++other) {
        const float* theirs = buffer + ((other - 1) * Config::kTileWarps + tile_warp) * kPerWarp + lane;
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
#pragma unroll
          for (int v = 0; v < Config::kValues; ++v) value[t][v] += theirs[(t * Config::kValues + v) * 32];
        }
      }
    }
  }
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    linear_bulk(const __grid_constant__ BulkArgs args) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int kTiles = Config::kTilesPerWarp;
  constexpr int kKWarps = Config::kKWarps;
  const int warp = static_cast<int>(threadIdx.x >> 5) - 1;  // -1: the producer
  const int lane = threadIdx.x & 31;
  const uint32_t ring = ptx::shared_address(shared);
  const uint32_t full = ring + Config::kBarrierOffset;
  const uint32_t empty = full + Config::kStages * 8;
  const uint32_t first_x = empty + Config::kStages * 8;
  StreamLog<Config> log{args.log + (blockIdx.x * (Config::kConsumers + 1) + warp + 1) * 64};
  log.mark(lane);
  const int count = args.split.quotient + (blockIdx.x < args.split.remainder ? 1 : 0);
  const int begin = args.split.begin(blockIdx.x);
  const int first_panel = args.by_k_steps.quotient(begin);
  const int first_k = begin - first_panel * args.k_steps;
  if (warp < 0) {
    if (lane == 0) bulk_init<Config>(full, empty, first_x);
    __syncwarp();
    ptx::bar_arrive(kBulkBarrier, (Config::kConsumers + 1) * 32);
    log.mark(lane);
    if (lane == 0) bulk_produce<Config>(ring, full, empty, first_x, args, count, first_k);
    log.mark(lane);
    __syncwarp();
    if constexpr (Config::kPart == Part::kTimeline) {
      for (int i = 0; i < count && i < Config::kStages && count <= Config::kStages; ++i) {
        ptx::mbarrier_wait(full + 8 * i, 0);
        log.mark(lane);
      }
    }
    return;
  }

  const int k_warp = warp / Config::kTileWarps;
  const int tile_warp = warp % Config::kTileWarps;
  const RingLane<Config> place(tile_warp * kTiles, 0, lane);
  RingPlace<Config::kStages, kKWarps> at{k_warp, 0};
  ptx::bar_sync(kBulkBarrier, (Config::kConsumers + 1) * 32);
  log.mark(lane);
  ptx::mbarrier_wait(first_x, 0);
  log.mark(lane);

  int slot = -1;
  int i = k_warp;  // index in the run of this group's next k step
  int piece_end = min(args.k_steps - first_k, count);
#pragma unroll 1
  for (int piece = 0;; ++piece) {
    float acc[kTiles][Config::kColumnTiles][Config::kGroups][4] = {};
#pragma unroll 1
    for (; i < piece_end; i += kKWarps) {
      ptx::mbarrier_wait(full + 8 * at.stage, at.parity);
      log.mark(lane);
      if constexpr (Config::kPart != Part::kCopyOnly) {
        ring_step<Config>(acc, ring + at.stage * kPanelStepBytes,
                          ring + Config::kXRingOffset + at.stage * Config::kXChunk, place);
      }
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(empty + 8 * at.stage);
      at.advance();
      log.mark(lane);
    }
    float value[kTiles][Config::kValues];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) ring_join<Config>(value[t], acc[t]);
    add_groups<Config>(value, shared, piece, k_warp, tile_warp, lane);
    if (k_warp == 0) {
      if (piece == 0) {
        slot = blockIdx.x - args.split.owner(first_panel * args.k_steps);
        if (args.programmatic) ptx::griddepcontrol_wait();  // the partial sums may still be read by an earlier kernel
      }
      stream_store<Config>(args.partial, value, slot,
                           (first_panel + piece) * kPanelRows + tile_warp * kTiles * kTileRows, args.rows, lane);
    }
    log.mark(lane);
    if (piece_end == count) break;
    piece_end = min(piece_end + args.k_steps, count);
    slot = 0;
  }
}

}  // namespace halfbyte::ladder
