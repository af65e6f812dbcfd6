// Step 6: one k step a stage, a bounded number of stages in flight, and groups of consumer warps that take the stages
// in turn.
//
// With the whole ring requested at once its stages arrive together, late, and the arithmetic of a ring's content is
// left over at the end (1.6 us at 92 KB). Keeping kInFlight stages in flight makes them arrive in order.
//
// Moves, shapes: as linear_ring. Order of sums: as there, but warp group i of kKWarps takes the k steps whose index in
// the run is i modulo kKWarps.
#pragma once

#include "linear_ring.cuh"

namespace halfbyte::ladder {

template <int kTokens_, int kTileWarps_, int kTilesPerWarp_, int kKWarps_, int kStages_, int kInFlight_,
          int kMinBlocks_, int kChains_ = 1, Part kPart_ = Part::kAll, int kCopyBytes_ = kPanelStepBytes>
struct StreamConfig {
  using Base = RingConfig<kTokens_, kTileWarps_, kTilesPerWarp_, 1, 1, 1>;
  static constexpr int kTokens = kTokens_;
  static constexpr int kTileWarps = kTileWarps_;
  static constexpr int kTilesPerWarp = kTilesPerWarp_;
  static constexpr int kKWarps = kKWarps_;
  static constexpr int kStages = kStages_;
  static constexpr int kInFlight = kInFlight_;
  static constexpr int kMinBlocks = kMinBlocks_;
  static constexpr int kChains = kChains_;
  static constexpr Part kPart = kPart_;
  static constexpr int kCopyBytes = kCopyBytes_;  // of one bulk copy

  static constexpr int kConsumers = kTileWarps * kKWarps;
  static constexpr int kThreads = (kConsumers + 1) * 32;
  static constexpr int kXChunk = Base::kXChunk;
  static constexpr int kXOffset = kPanelStepBytes;
  static constexpr int kStageBytes = (kPanelStepBytes + kXChunk + 127) / 128 * 128;
  static constexpr int kColumns = Base::kColumns;
  static constexpr int kColumnTiles = Base::kColumnTiles;
  static constexpr int kBlocksPerTile = Base::kBlocksPerTile;
  static constexpr int kGroups = Base::kGroups;
  static constexpr int kValues = Base::kValues;

  static constexpr int kReduceFloats = 2 * (kKWarps - 1) * kTileWarps * kTilesPerWarp * kValues * 32;
  static constexpr int kBarrierOffset = kStages * kStageBytes;
  static constexpr int kReduceOffset = kBarrierOffset + (kStages * 16 + 127) / 128 * 128;
  static constexpr int kSharedBytes = kReduceOffset + kReduceFloats * 4;

  static_assert(kTileWarps * kTilesPerWarp == kPanelTiles, "the warps of a group must cover a panel");
  static_assert(kInFlight <= kStages);
  static_assert(kStages % kKWarps == 0, "a stage belongs to one group of warps");
  static_assert(kSharedBytes <= 227 * 1024, "shared memory of one thread block");
};

// A ring position that moves on by a fixed number of stages.
template <int kStages, int kStride>
struct RingPlace {
  int stage;
  uint32_t parity;
  __device__ __forceinline__ void advance() {
    stage += kStride;
    if (stage >= kStages) {
      stage -= kStages;
      parity ^= 1;
    }
  }
};

// A stage's weights: k step i of this block's run.
template <class Config>
__device__ __forceinline__ void stream_send_weights(uint32_t ring, uint32_t full, const uint8_t* weights, int i,
                                                    int stage) {
  const uint8_t* from = weights + (static_cast<size_t>(i) * gridDim.x + blockIdx.x) * kPanelStepBytes;
  const uint32_t to = ring + stage * Config::kStageBytes;
#pragma unroll
  for (int b = 0; b < kPanelStepBytes; b += Config::kCopyBytes)
    ptx::cp_async_bulk(to + b, from + b, Config::kCopyBytes, full + 8 * stage);
}

// One thread, before the block's barrier: barriers, then at once the weights, which do not depend on the kernel before
// this one.
template <class Config>
__device__ __forceinline__ void stream_begin(uint32_t ring, uint32_t full, uint32_t empty, const uint8_t* weights,
                                             int count) {
#pragma unroll
  for (int s = 0; s < Config::kStages; ++s) ptx::mbarrier_init(full + 8 * s, 1);
  ptx::fence_mbarrier_init();
#pragma unroll
  for (int i = 0; i < Config::kInFlight; ++i) {
    if (i < count) {
      ptx::mbarrier_arrive_expect_tx(full + 8 * i, kPanelStepBytes);
      stream_send_weights<Config>(ring, full, weights, i, i);
    }
  }
#pragma unroll
  for (int s = 0; s < Config::kStages; ++s) ptx::mbarrier_init(empty + 8 * s, Config::kTileWarps);
  ptx::fence_mbarrier_init();
  ptx::griddepcontrol_launch_dependents();
}

// The same thread, after the barrier: the rest of the run, stage by stage with its x^.
template <class Config>
__device__ __forceinline__ void stream_produce(uint32_t ring, uint32_t full, uint32_t empty, const uint8_t* weights,
                                               const uint8_t* x, int count, int k, int k_steps) {
  constexpr int kStages = Config::kStages;
  ptx::griddepcontrol_wait();
  k += Config::kInFlight;
  while (k >= k_steps) k -= k_steps;
  RingPlace<kStages, 1> place{Config::kInFlight % kStages, Config::kInFlight == kStages ? 0u : 1u};
  RingPlace<kStages, 1> behind{0, 0};  // kInFlight stages ago
#pragma unroll 1
  for (int i = Config::kInFlight; i < count; ++i) {
    if (i >= kStages) ptx::mbarrier_wait(empty + 8 * place.stage, place.parity);
    if (Config::kInFlight < kStages) ptx::mbarrier_wait(full + 8 * behind.stage, behind.parity);
    ptx::mbarrier_arrive_expect_tx(full + 8 * place.stage, kPanelStepBytes + Config::kXChunk);
    ptx::cp_async_bulk(ring + place.stage * Config::kStageBytes + Config::kXOffset,
                       x + static_cast<size_t>(k) * Config::kXChunk, Config::kXChunk, full + 8 * place.stage);
    stream_send_weights<Config>(ring, full, weights, i, place.stage);
    place.advance();
    behind.advance();
    if (++k == k_steps) k = 0;
  }
}

template <class Config>
__device__ __forceinline__ void stream_first_x(uint32_t ring, const uint8_t* x, int count, int k, int k_steps, int warp,
                                               int lane) {
  for (int i = warp; i < min(Config::kInFlight, count); i += Config::kConsumers) {
    int at = k + i;
    while (at >= k_steps) at -= k_steps;
    const uint8_t* from = x + static_cast<size_t>(at) * Config::kXChunk;
    const uint32_t to = ring + i * Config::kStageBytes + Config::kXOffset;
    for (int b = lane * 16; b < Config::kXChunk; b += 512) ptx::cp_async_16(to + b, from + b);
  }
  ptx::cp_async_wait_all();
}

// Writes a warp's tiles of one slot.
template <class Config>
__device__ __forceinline__ void stream_store(float* partial,
                                             const float (&value)[Config::kTilesPerWarp][Config::kValues], int slot,
                                             int first_row, int rows, int lane) {
  const int g = lane >> 2;
  const int t = lane & 3;
  constexpr int kHolders = Config::kTokens == 4 ? 2 : Config::kTokens < 4 ? 1 : 4;
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

template <class Config>
struct StreamLog {  // Part::kTimeline: cycle counts of one warp; 64 words a warp
  uint32_t* at = nullptr;
  __device__ __forceinline__ void mark(int lane) {
    if constexpr (Config::kPart == Part::kTimeline) {
      if (lane == 0) *at++ = static_cast<uint32_t>(clock64());
    }
  }
};

// partial: [slot][M][rows] FP32. weights: [index in the run][run][tile]. x: k_steps chunks. log: only with
// Part::kTimeline.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    linear_stream(const uint8_t* __restrict__ weights, const uint8_t* __restrict__ x, float* __restrict__ partial,
                  Split split, int k_steps, int rows, uint32_t* log_words) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int kTiles = Config::kTilesPerWarp;
  constexpr int kKWarps = Config::kKWarps;
  const int lane = threadIdx.x & 31;
  const uint32_t ring = ptx::shared_address(shared);
  const uint32_t full = ring + Config::kBarrierOffset;
  const uint32_t empty = full + Config::kStages * 8;
  const int warp = static_cast<int>(threadIdx.x >> 5) - 1;  // -1: the producer, in the warp that starts first
  StreamLog<Config> log{log_words + (blockIdx.x * (Config::kConsumers + 1) + warp + 1) * 64};
  log.mark(lane);
  const int count = split.quotient + (blockIdx.x < split.remainder ? 1 : 0);
  if (warp < 0) {
    if (lane == 0) stream_begin<Config>(ring, full, empty, weights, count);
    __syncwarp();
  }
  log.mark(lane);
  const int begin = split.begin(blockIdx.x);
  const int first_panel = begin / k_steps;
  const int first_k = begin - first_panel * k_steps;
  if (warp < 0) {
    __syncthreads();
    if (lane == 0) stream_produce<Config>(ring, full, empty, weights, x, count, first_k, k_steps);
    if constexpr (Config::kPart == Part::kTimeline) {
      if (count <= Config::kStages) {
        for (int i = 0; i < count; ++i) {
          ptx::mbarrier_wait(full + 8 * i, 0);
          log.mark(lane);
        }
      }
    }
    return;
  }

  const int k_warp = warp / Config::kTileWarps;
  const int tile_warp = warp % Config::kTileWarps;
  const RingLane<Config> place(tile_warp * kTiles, 0, lane);
  int slot = blockIdx.x - split.owner(first_panel * k_steps);
  RingPlace<Config::kStages, kKWarps> at{k_warp, 0};
  ptx::griddepcontrol_wait();
  stream_first_x<Config>(ring, x, count, first_k, k_steps, warp, lane);
  __syncthreads();
  log.mark(lane);

  int i = k_warp;  // index in the run of this group's next k step
  int piece_end = min(k_steps - first_k, count);
  for (int piece = 0;; ++piece) {
    float acc[kTiles][Config::kColumnTiles][Config::kGroups][4] = {};
    for (; i < piece_end; i += kKWarps) {
      ptx::mbarrier_wait(full + 8 * at.stage, at.parity);
      log.mark(lane);
      if constexpr (Config::kPart != Part::kCopyOnly)
        ring_step<Config>(acc, ring + at.stage * Config::kStageBytes, ring + at.stage * Config::kStageBytes, place);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(empty + 8 * at.stage);
      at.advance();
      log.mark(lane);
    }
    float value[kTiles][Config::kValues];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) ring_join<Config>(value[t], acc[t]);
    if constexpr (kKWarps > 1) {
      // Group 0 adds the other groups' sums in order. Two buffers, so that one barrier a piece is enough.
      constexpr int kPerWarp = kTiles * Config::kValues * 32;
      float* buffer =
          reinterpret_cast<float*>(shared + Config::kReduceOffset) + (piece & 1) * (Config::kReduceFloats / 2);
      if (k_warp != 0) {
        float* mine = buffer + ((k_warp - 1) * Config::kTileWarps + tile_warp) * kPerWarp + lane;
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
#pragma unroll
          for (int v = 0; v < Config::kValues; ++v) mine[(t * Config::kValues + v) * 32] = value[t][v];
        }
      }
      ptx::bar_sync(1 + tile_warp, kKWarps * 32);
      if (k_warp == 0) {
#pragma unroll
        for (int other = 1; other < kKWarps; ++other) {
          const float* theirs = buffer + ((other - 1) * Config::kTileWarps + tile_warp) * kPerWarp + lane;
#pragma unroll
          for (int t = 0; t < kTiles; ++t) {
#pragma unroll
            for (int v = 0; v < Config::kValues; ++v) value[t][v] += theirs[(t * Config::kValues + v) * 32];
          }
        }
      }
    }
    if (k_warp == 0) {
      stream_store<Config>(partial, value, slot, (first_panel + piece) * kPanelRows + tile_warp * kTiles * kTileRows,
                           rows, lane);
    }
    log.mark(lane);
    if (piece_end == count) break;
    piece_end = min(piece_end + k_steps, count);
    slot = 0;
  }
}

}  // namespace halfbyte::ladder
