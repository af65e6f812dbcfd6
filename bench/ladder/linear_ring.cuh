// Step 3: bulk copies into a shared-memory ring, one producer warp, consumer warps that only compute.
//
// Moves   N K 0.5625 bytes of weights once; x^ of the thread block's own k steps from L2; writes slots x M x N FP32
// partial sums. Shapes  N a multiple of 128 and K of 128 (the packer pads), M in {1, 2, 4, 8, 16}. Order   of sums of
// one output, the same for every M: in a warp 8 partial sums by block index mod 8, k steps ascending, joined as
//         ((0+1)+(2+3))+((4+5)+(6+7)); then the kKWarps warps of the block ascending; then the slots ascending (the
//         reader adds them).
#pragma once

#include "ptx.cuh"
#include "step_layout.h"

namespace halfbyte::ladder {

// Parts to leave out when measuring where the time goes.
enum class Part { kAll, kCopyOnly, kTimeline };

// Step 3 sent the first round's x^ through the copy engine behind all the ring's weights, where it waited for them (1.6
// us at 92 KB of ring, 3 us at 200 KB); since step 4 the consumers fetch it with cp.async.
enum class FirstX { kBulkBehindWeights, kConsumers };

// Step 5: the k steps that the thread blocks read at the same time are neighbours in memory.
enum class Memory { kRunByRun, kInterleaved };

template <int kTokens_, int kTileWarps_, int kTilesPerWarp_, int kKWarps_, int kStages_, int kMinBlocks_,
          FirstX kFirstX_ = FirstX::kConsumers, Memory kMemory_ = Memory::kRunByRun, Part kPart_ = Part::kAll>
struct RingConfig {
  static constexpr int kTokens = kTokens_;
  static constexpr int kTileWarps = kTileWarps_;        // warps side by side over the row tiles of a panel
  static constexpr int kTilesPerWarp = kTilesPerWarp_;  // row tiles that share one read of x^
  static constexpr int kKWarps = kKWarps_;              // warps that take the k steps of a unit in turn
  static constexpr int kStages = kStages_;              // units in the ring
  static constexpr int kMinBlocks = kMinBlocks_;
  static constexpr FirstX kFirstX = kFirstX_;
  static constexpr Memory kMemory = kMemory_;
  static constexpr Part kPart = kPart_;
  static constexpr int kChains = 1;

  static constexpr int kConsumers = kTileWarps * kKWarps;
  static constexpr int kThreads = (kConsumers + 1) * 32;
  static constexpr int kXChunk = x_chunk_bytes(kTokens);
  static constexpr int kWeightBytes = kKWarps * kPanelStepBytes;
  static constexpr int kXOffset = kWeightBytes;
  static constexpr int kStageBytes = (kWeightBytes + kKWarps * kXChunk + 127) / 128 * 128;

  static constexpr int kColumns = kTokens < 8 ? kTokens : 8;  // columns of one MMA that are different tokens
  static constexpr int kColumnTiles = kTokens < 8 ? 1 : kTokens / 8;
  static constexpr int kBlocksPerTile = 8 / kColumns;  // K blocks side by side in the 8 columns of one accumulator tile
  static constexpr int kGroups = kColumns;             // accumulator tiles a k step
  static constexpr int kValues =
      kTokens == 1 ? 2 : 4 * kColumnTiles;  // results a lane holds after the lanes are joined

  static constexpr int kReduceFloats = 2 * (kKWarps - 1) * kTileWarps * kTilesPerWarp * kValues * 32;
  static constexpr int kBarrierOffset = kStages * kStageBytes;
  static constexpr int kReduceOffset = kBarrierOffset + (kStages * 16 + 127) / 128 * 128;
  static constexpr int kSharedBytes = kReduceOffset + kReduceFloats * 4;

  static_assert(kTileWarps * kTilesPerWarp == kPanelTiles, "the warps of a unit must cover a panel");
  static_assert(kTokens == 1 || kTokens == 2 || kTokens == 4 || kTokens == 8 || kTokens == 16,
                "M must be 1, 2, 4, 8 or 16");
  static_assert(kSharedBytes <= 227 * 1024, "shared memory of one thread block");
  static_assert(kStages * 16 <= 1024);
};

// The A operand of one k16 step from a word of the mixed code.
__device__ __forceinline__ void decode_mixed(uint32_t (&a)[4], uint32_t w) {
  a[0] = ptx::xor_and(w, w >> 3, kPairMask);
  a[1] = ptx::xor_and(w, w << 2, kPairMask);
  a[2] = ptx::xor_and(w, w << 6, kPairMask);
  a[3] = ptx::xor_and(w, w << 9, kPairMask);
}

// Byte `index` of four scale bytes as FP32 times 2^kScaleExponent.
template <int kIndex>
__device__ __forceinline__ float scale_of(uint32_t bytes) {
  const uint32_t shifted = kIndex == 0   ? bytes << 20
                           : kIndex == 1 ? bytes << 12
                           : kIndex == 2 ? bytes << 4
                                         : bytes >> 4;
  return __uint_as_float(ptx::and_or(shifted, kScaleMask, kScaleBias));
}

template <class Config>
struct RingLane {
  static constexpr int kTokens = Config::kTokens;
  static constexpr int kColumns = Config::kColumns;
  static constexpr int kXRegisters = kTokens < 8 ? 4 : 1;

  uint32_t weights;         // offset of this lane's first 16 bytes in a stage
  uint32_t scales;          // offset of its scale bytes
  uint32_t x[kXRegisters];  // offsets of the rows that it gives to ldmatrix, by pair of blocks
  uint32_t scale_factor;    // M = 2 and 4: power of two that brings its byte to the exponent

  __device__ __forceinline__ RingLane(int tile, int k_warp, int lane) {
    const int g = lane >> 2;
    const int t = lane & 3;
    const uint32_t step = (k_warp * kPanelTiles + tile) * kStepBytes;
    weights = step + lane * 16;
    scales = step + kCodeBytes + (kTokens == 1 ? lane * 4 : kTokens == 2 ? g * 16 + (t >> 1) * 4 : g * 16);
    scale_factor = ((kTokens == 2 ? t & 1 : t >> 1) != 0) ? 1u << 12 : 1u << 20;
    // ldmatrix: lanes 8 i .. 8 i + 7 give the rows (columns of B) of matrix i; matrices 0, 1 are the halves of block 2
    // q, 2, 3 of 2 q + 1.
    const int half = (lane >> 3) & 1;
    const int odd = lane >> 4;
    const int column = (lane & 7) % kColumns;
    const int place = (lane & 7) / kColumns;  // which of the blocks side by side this column carries
    const uint32_t chunk = Config::kXOffset + k_warp * Config::kXChunk;
#pragma unroll
    for (int q = 0; q < kXRegisters; ++q) {
      const int block = 2 * q + odd;
      const bool carried = block % Config::kBlocksPerTile == place;
      const uint32_t data = ((block * 2 + half) * kTokens + column) * 16;
      // Zeros for the other columns, in banks that the data of this phase does not use.
      const uint32_t zeros = kTokens * kStepK * 2 + (kTokens == 1   ? (1 - half) * 16
                                                     : kTokens == 2 ? 32 - 32 * half
                                                                    : 64 - 64 * half);
      x[q] = chunk + (carried ? data : zeros);
      asm volatile("" : "+r"(x[q]));  // keep: the compiler would compute the offsets again in every step
    }
    asm volatile("" : "+r"(weights), "+r"(scales), "+r"(scale_factor));
  }
};

// One k step of kTilesPerWarp row tiles: acc[tile][column tile][group] += block dot x block scale.
template <class Config>
__device__ __forceinline__ void ring_step(float (&acc)[Config::kTilesPerWarp][Config::kColumnTiles][Config::kGroups][4],
                                          uint32_t stage, uint32_t x_stage, const RingLane<Config>& lane) {
  constexpr int kTiles = Config::kTilesPerWarp;
  constexpr int kTokens = Config::kTokens;
  constexpr int kColumnTiles = Config::kColumnTiles;
  constexpr int kBlocksPerTile = Config::kBlocksPerTile;
  constexpr int kScaleWords = kTokens == 1 ? 1 : kTokens == 2 ? 2 : 4;
  uint32_t words[kTiles][8];
  uint32_t scales[kTiles][kScaleWords];
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
    if constexpr (kTokens == 1) {
      scales[i][0] = ptx::lds(stage + lane.scales + i * kStepBytes);
    } else if constexpr (kTokens == 2) {
      scales[i][0] = ptx::lds(stage + lane.scales + i * kStepBytes);
      scales[i][1] = ptx::lds(stage + lane.scales + i * kStepBytes + 8);
    } else {
      const uint4 v = ptx::lds_v4(stage + lane.scales + i * kStepBytes);
      scales[i][0] = v.x;
      scales[i][1] = v.y;
      scales[i][2] = v.z;
      scales[i][3] = v.w;
    }
  }
  constexpr int kChains = kBlocksPerTile > 1 ? Config::kChains : 1;
  float c[kTiles][kColumnTiles][kChains][4];
#pragma unroll
  for (int q = 0; q < 4; ++q) {
    uint32_t b[kColumnTiles][4];
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      if constexpr (kTokens < 8) {
        ptx::ldmatrix_x4(b[n], x_stage + lane.x[q]);
      } else {
        ptx::ldmatrix_x4(b[n], x_stage + lane.x[0] + q * 64 * kTokens + n * 128);
      }
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int jj = 0; jj < 2; ++jj) {
        const int j = 2 * q + jj;
        uint32_t a[4];
        decode_mixed(a, words[i][j]);
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) {
          if (j % kBlocksPerTile < kChains) {
            ptx::mma_m16n8k16_from_zero(c[i][n][j % kChains], a, b[n][2 * jj], b[n][2 * jj + 1]);
          } else {
            ptx::mma_m16n8k16(c[i][n][j % kChains], a, b[n][2 * jj], b[n][2 * jj + 1]);
          }
        }
        if ((j + 1) % kBlocksPerTile != 0) continue;
        if constexpr (kChains == 2) {
          // A column is zero in every MMA but its own block's, so one of the two is zero and the sum is exact.
#pragma unroll
          for (int e = 0; e < 4; ++e) c[i][0][0][e] += c[i][0][1][e];
        }
        const int group = j / kBlocksPerTile;
        float low0, low1, high0, high1;  // scales of this lane's two columns for rows g and g + 8
        if constexpr (kTokens == 1) {
          low0 = scale_of<0>(scales[i][0]);
          low1 = scale_of<1>(scales[i][0]);
          high0 = scale_of<2>(scales[i][0]);
          high1 = scale_of<3>(scales[i][0]);
        } else {
          if constexpr (kTokens < 8) {
            const uint32_t word = scales[i][group];
            low0 = __uint_as_float(ptx::and_or(word * lane.scale_factor, kScaleMask, kScaleBias));
            high0 = __uint_as_float(ptx::and_or((word >> 16) * lane.scale_factor, kScaleMask, kScaleBias));
          } else {
            const uint32_t word = scales[i][group >> 1];
            low0 = (group & 1) == 0 ? scale_of<0>(word) : scale_of<1>(word);
            high0 = (group & 1) == 0 ? scale_of<2>(word) : scale_of<3>(word);
          }
          low1 = low0;
          high1 = high0;
        }
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) {
          float(&sum)[4] = acc[i][n][group];
          sum[0] = fmaf(c[i][n][0][0], low0, sum[0]);
          sum[1] = fmaf(c[i][n][0][1], low1, sum[1]);
          sum[2] = fmaf(c[i][n][0][2], high0, sum[2]);
          sum[3] = fmaf(c[i][n][0][3], high1, sum[3]);
        }
      }
    }
  }
}

// Joins the 8 partial sums. Lane (g, t) ends with rows g and g + 8 of its columns; for M < 8 only lanes t <
// columns_held do.
template <class Config>
__device__ __forceinline__ void ring_join(float (&value)[Config::kValues],
                                          const float (&acc)[Config::kColumnTiles][Config::kGroups][4]) {
  constexpr int kTokens = Config::kTokens;
  auto across = [](float v, int mask) { return v + __shfl_xor_sync(~0u, v, mask); };
  if constexpr (kTokens == 1) {
    value[0] = across(across(acc[0][0][0] + acc[0][0][1], 1), 2);
    value[1] = across(across(acc[0][0][2] + acc[0][0][3], 1), 2);
  } else {
#pragma unroll
    for (int n = 0; n < Config::kColumnTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float r[Config::kGroups];
#pragma unroll
        for (int group = 0; group < Config::kGroups; ++group) {
          r[group] = acc[n][group][e];
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

// The units of a run, in order: up to kKWarps k steps of one panel each.
struct Units {
  int at;  // k step in the order of the split
  int k;   // the same within its panel
  int end;
  int k_steps;

  __device__ __forceinline__ bool more() const { return at < end; }
  template <int kMost>
  __device__ __forceinline__ int count() const {
    return kMost == 1 ? 1 : min(min(kMost, k_steps - k), end - at);
  }
  __device__ __forceinline__ void advance(int count) {
    at += count;
    k += count;
    if (k == k_steps) k = 0;
  }
};

template <class Config>
__device__ __forceinline__ void copy_weights(uint32_t stage, uint32_t barrier, const uint8_t* weights, int at,
                                             int count, int begin) {
  if constexpr (Config::kMemory == Memory::kRunByRun) {
    ptx::cp_async_bulk(stage, weights + static_cast<size_t>(at) * kPanelStepBytes, count * kPanelStepBytes, barrier);
  } else {
#pragma unroll
    for (int i = 0; i < Config::kKWarps; ++i) {
      if (i < count) {
        const size_t place = static_cast<size_t>(at + i - begin) * gridDim.x + blockIdx.x;
        ptx::cp_async_bulk(stage + i * kPanelStepBytes, weights + place * kPanelStepBytes, kPanelStepBytes, barrier);
      }
    }
  }
}

// The producer's thread. Weights do not depend on the kernel before this one, so the first round of the ring is sent
// before the dependency wait.
template <class Config>
__device__ __forceinline__ void ring_first_weights(uint32_t ring, uint32_t full, const uint8_t* weights, Units units) {
  const int begin = units.at;
  constexpr int kFirstXBytes = Config::kFirstX == FirstX::kBulkBehindWeights ? Config::kXChunk : 0;
  for (int s = 0; s < Config::kStages && units.more(); ++s) {
    const int count = units.count<Config::kKWarps>();
    ptx::mbarrier_arrive_expect_tx(full + 8 * s, count * (kPanelStepBytes + kFirstXBytes));
    copy_weights<Config>(ring + s * Config::kStageBytes, full + 8 * s, weights, units.at, count, begin);
    units.advance(count);
  }
}

template <class Config>
__device__ __forceinline__ void ring_produce(uint32_t ring, uint32_t full, uint32_t empty, const uint8_t* weights,
                                             const uint8_t* x, Units units) {
  const int begin = units.at;
  int stage = 0;
  uint32_t parity = 1;
  bool first_round = true;
  while (units.more()) {
    const int count = units.count<Config::kKWarps>();
    const uint32_t base = ring + stage * Config::kStageBytes;
    if (!first_round) {
      ptx::mbarrier_wait(empty + 8 * stage, parity);
      ptx::mbarrier_arrive_expect_tx(full + 8 * stage, count * (kPanelStepBytes + Config::kXChunk));
      copy_weights<Config>(base, full + 8 * stage, weights, units.at, count, begin);
    }
    if (!first_round || Config::kFirstX == FirstX::kBulkBehindWeights) {
      ptx::cp_async_bulk(base + Config::kXOffset, x + static_cast<size_t>(units.k) * Config::kXChunk,
                         count * Config::kXChunk, full + 8 * stage);
    }
    units.advance(count);
    if (++stage == Config::kStages) {
      stage = 0;
      parity ^= 1;
      first_round = false;
    }
  }
}

// The consumers fetch the first round's x^: warp w the stages w, w + kConsumers, ...
template <class Config>
__device__ __forceinline__ void ring_first_x(uint32_t ring, const uint8_t* x, Units units, int warp, int lane) {
  for (int s = 0; s < Config::kStages && units.more(); ++s) {
    const int count = units.count<Config::kKWarps>();
    if (s % Config::kConsumers == warp) {
      const uint8_t* from = x + static_cast<size_t>(units.k) * Config::kXChunk;
      const uint32_t to = ring + s * Config::kStageBytes + Config::kXOffset;
      for (int i = lane * 16; i < count * Config::kXChunk; i += 512) ptx::cp_async_16(to + i, from + i);
    }
    units.advance(count);
  }
  ptx::cp_async_wait_all();
}

// partial: [slot][M][rows] FP32. x: k_steps chunks. Every thread block takes split's run of its index.
template <class Config>
__global__ void __launch_bounds__(Config::kThreads, Config::kMinBlocks)
    linear_ring(const uint8_t* __restrict__ weights, const uint8_t* __restrict__ x, float* __restrict__ partial,
                Split split, int k_steps, int rows) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int kTiles = Config::kTilesPerWarp;
  const int warp = threadIdx.x >> 5;
  const int lane = threadIdx.x & 31;
  const uint32_t ring = ptx::shared_address(shared);
  const uint32_t full = ring + Config::kBarrierOffset;  // [stage] 8 bytes
  const uint32_t empty = full + Config::kStages * 8;
  const int begin = split.begin(blockIdx.x);
  const int end = split.begin(blockIdx.x + 1);
  const int panel_of_begin = begin / k_steps;
  Units units{begin, begin - panel_of_begin * k_steps, end, k_steps};

  if (warp == Config::kConsumers) {
    if (lane == 0) {
      for (int s = 0; s < Config::kStages; ++s) {
        ptx::mbarrier_init(full + 8 * s, 1);
        ptx::mbarrier_init(empty + 8 * s, Config::kConsumers);
      }
      ptx::fence_mbarrier_init();
      ptx::griddepcontrol_launch_dependents();
      ring_first_weights<Config>(ring, full, weights, units);
    }
    __syncthreads();
    if (lane == 0) {
      ptx::griddepcontrol_wait();
      ring_produce<Config>(ring, full, empty, weights, x, units);
    }
    return;
  }

  const int k_warp = warp / Config::kTileWarps;
  const int tile = (warp % Config::kTileWarps) * kTiles;
  const RingLane<Config> place(tile, k_warp, lane);
  float acc[kTiles][Config::kColumnTiles][Config::kGroups][4] = {};
  int panel = panel_of_begin;
  int slot = blockIdx.x - split.owner(panel * k_steps);
  int stage = 0;
  uint32_t parity = 0;
  int flushed = 0;
  if constexpr (Config::kFirstX == FirstX::kConsumers) {
    ptx::griddepcontrol_wait();
    ring_first_x<Config>(ring, x, units, warp, lane);
  }
  __syncthreads();

  while (units.more()) {
    const int count = units.count<Config::kKWarps>();
    ptx::mbarrier_wait(full + 8 * stage, parity);
    if constexpr (Config::kPart == Part::kAll) {
      if (Config::kKWarps == 1 || k_warp < count)
        ring_step<Config>(acc, ring + stage * Config::kStageBytes, ring + stage * Config::kStageBytes, place);
    }
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(empty + 8 * stage);
    if (++stage == Config::kStages) {
      stage = 0;
      parity ^= 1;
    }
    units.advance(count);
    if (units.k != 0 && units.more()) continue;

    // The end of a panel or of the run: join, add the k warps in order, write the slot.
    float* reduce =
        reinterpret_cast<float*>(shared + Config::kReduceOffset) + (flushed & 1) * (Config::kReduceFloats / 2);
    float value[kTiles][Config::kValues];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) ring_join<Config>(value[i], acc[i]);
    if constexpr (Config::kKWarps > 1) {
      constexpr int kPerWarp = kTiles * Config::kValues * 32;
      const int tile_warp = warp % Config::kTileWarps;
      if (k_warp != 0) {
        float* mine = reduce + ((k_warp - 1) * Config::kTileWarps + tile_warp) * kPerWarp + lane;
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
          for (int v = 0; v < Config::kValues; ++v) mine[(i * Config::kValues + v) * 32] = value[i][v];
        }
      }
      ptx::bar_sync(1 + tile_warp, Config::kKWarps * 32);
      if (k_warp == 0) {
#pragma unroll
        for (int other = 1; other < Config::kKWarps; ++other) {
          const float* theirs = reduce + ((other - 1) * Config::kTileWarps + tile_warp) * kPerWarp + lane;
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
#pragma unroll
            for (int v = 0; v < Config::kValues; ++v) value[i][v] += theirs[(i * Config::kValues + v) * 32];
          }
        }
      }
    }
    if (k_warp == 0) {
      // The partial sums may still be read by an earlier kernel.
      if (Config::kFirstX == FirstX::kBulkBehindWeights && flushed == 0) ptx::griddepcontrol_wait();
      const int g = lane >> 2;
      const int t = lane & 3;
      constexpr int kHolders = Config::kTokens == 4 ? 2 : Config::kTokens < 4 ? 1 : 4;
      if (t < kHolders) {
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          const int row = panel * kPanelRows + (tile + i) * kTileRows + g;
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
    }
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int n = 0; n < Config::kColumnTiles; ++n) {
#pragma unroll
        for (int group = 0; group < Config::kGroups; ++group) {
#pragma unroll
          for (int e = 0; e < 4; ++e) acc[i][n][group][e] = 0.f;
        }
      }
    }
    ++flushed;
    ++panel;
    slot = 0;
  }
}

}  // namespace halfbyte::ladder
