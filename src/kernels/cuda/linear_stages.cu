// linear_fp4 for devices without bulk copies, or without the shared memory of its rings: the same packed weights, the same
// split, and the same products in the same order, so the same bits.
//
// Moves    what linear_fp4 moves.
// Order    that of linear_fp4, whose multiply_step, join, add_groups and store_slot these are.
// How      a thread block a run, two groups of warps with the run's k steps in turn, as there. Each warp brings the weights
//          of its own rows by cp.async, a few stages ahead; x^ of a step is brought by all warps of the group, which meet
//          once a step. The first stages' weights are asked for before the wait for the kernel ahead.
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp4.cuh"
#include "kernels/cuda/linear_lists.h"

namespace halfbyte::cuda {
namespace {

constexpr int kMostShared = 99 * 1024;  // what every device from 8.0 on has

// The ring's form in all that decides numbers; stages instead of rings.
template <int kTokens_>
struct StagesConfig : LinearConfig<kTokens_, kRingStages, kRingInFlight> {
  using Ring = LinearConfig<kTokens_, kRingStages, kRingInFlight>;
  static constexpr int kWarps = kGroupsOfWarps * Ring::kTileWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kGroupThreads = Ring::kTileWarps * 32;
  static constexpr int kStageBytes = kPanelStepBytes + Ring::kXChunk;
  static constexpr int kReduceBytes = Ring::kReduceFloats * 4;
  static constexpr int kFitting = (kMostShared - kReduceBytes) / (kGroupsOfWarps * kStageBytes);
  static constexpr int kStages = kFitting < 6 ? kFitting : 6;
  static constexpr int kGroupBytes = kStages * kStageBytes;
  static constexpr int kReduceOffset = kGroupsOfWarps * kGroupBytes;
  static constexpr int kSharedBytes = kReduceOffset + kReduceBytes;
  static_assert(kStages >= 3 && kSharedBytes <= kMostShared);
  static_assert(kStageBytes % 16 == 0);
};

// What a warp copies of one stage.
template <class Config>
struct StageCopies {
  const LinearArgs& args;
  uint32_t base;  // of the group's stages
  int tile_warp, lane;

  __device__ __forceinline__ void weights(int stage, int index) const {
    constexpr int kBytes = Config::kTilesPerWarp * kStepBytes;
    const int own = tile_warp * kBytes;
    const uint8_t* from = args.weights + (static_cast<size_t>(index) * gridDim.x + blockIdx.x) * kPanelStepBytes + own;
    const uint32_t to = base + stage * Config::kStageBytes + own;
#pragma unroll
    for (int at = 0; at < kBytes; at += 512) {
      if (at + lane * 16 < kBytes) ptx::cp_async_16(to + at + lane * 16, from + at + lane * 16);
    }
  }
  __device__ __forceinline__ void x(int stage, int k) const {
    const uint8_t* from = args.x + static_cast<size_t>(k) * Config::kXChunk;
    const uint32_t to = base + stage * Config::kStageBytes + kPanelStepBytes;
    for (int at = (tile_warp * 32 + lane) * 16; at < Config::kXChunk; at += Config::kGroupThreads * 16)
      ptx::cp_async_16(to + at, from + at);
  }
};

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1) linear_stages(const __grid_constant__ LinearArgs args) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int S = Config::kStages, kTiles = Config::kTilesPerWarp;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x >> 5), 0), lane = static_cast<int>(threadIdx.x & 31);
  const int group = warp / Config::kTileWarps, tile_warp = warp % Config::kTileWarps;
  const int group_barrier = 1 + Config::kTileWarps + group;  // add_groups has the first ones
  const int begin = args.split.begin(blockIdx.x), count = args.split.begin(blockIdx.x + 1) - begin;
  const int first_panel = begin / args.k_steps, first_k = begin - first_panel * args.k_steps;
  const uint32_t base = ptx::shared_address(shared) + group * Config::kGroupBytes;
  const StageCopies<Config> copies{args, base, tile_warp, lane};
  const int own = (count - group + kGroupsOfWarps - 1) / kGroupsOfWarps;  // k steps of this group
  const auto index_of = [&](int i) { return group + i * kGroupsOfWarps; };
  const auto k_of = [&](int i) { return (first_k + index_of(i)) % args.k_steps; };
#pragma unroll 1
  for (int i = 0; i < S - 1 && i < own; ++i) copies.weights(i, index_of(i));
  ptx::griddepcontrol_wait();
#pragma unroll 1
  for (int i = 0; i < S - 1; ++i) {  // a group of copies a stage, empty ones too, so that they can be counted
    if (i < own) copies.x(i, k_of(i));
    ptx::cp_async_commit();  // the first one has all the weights above
  }
  const StageLane<Config> place(tile_warp * kTiles, lane);
  float* reduce = reinterpret_cast<float*>(shared + Config::kReduceOffset);
  int slot = static_cast<int>(blockIdx.x) - args.split.owner(first_panel * args.k_steps);
  int i = 0, stage = 0, next_k = own > S - 1 ? k_of(S - 1) : 0;
  int piece_end = min(args.k_steps - first_k, count);
#pragma unroll 1
  for (int piece = 0;; ++piece) {
    Sums<Config> sums = {};
#pragma unroll 1
    for (; i < own && index_of(i) < piece_end; ++i) {
      ptx::cp_async_wait<S - 2>();
      ptx::bar_sync(group_barrier, Config::kGroupThreads);  // the stage is there, and all have done with the one before
      if (i + S - 1 < own) {
        const int to = stage == 0 ? S - 1 : stage - 1;
        copies.weights(to, index_of(i + S - 1));
        copies.x(to, next_k);
        next_k += kGroupsOfWarps;
        while (next_k >= args.k_steps) next_k -= args.k_steps;
      }
      ptx::cp_async_commit();
      const uint32_t at = base + stage * Config::kStageBytes;
      multiply_step<Config>(sums, at, at + kPanelStepBytes, place);
      if (++stage == S) stage = 0;
    }
    if (i == own) ptx::griddepcontrol_launch_dependents();
    float value[kTiles][Config::kValues];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) join<Config>(value[t], sums[t]);
    add_groups<Config>(value, reduce + (piece & 1) * (Config::kReduceFloats / 2), group, tile_warp, lane);
    if (group == 0)
      store_slot<Config>(args.partial, value, slot, (first_panel + piece) * kPanelRows + tile_warp * kTiles * kTileRows,
                         args.rows, lane);
    if (piece_end == count) break;
    piece_end = min(piece_end + args.k_steps, count);
    slot = 0;
  }
}

template <int kTokens>
Status launch_tokens(const LinearArgs& args, const Launch& how) {
  using Config = StagesConfig<kTokens>;
  static const cudaError_t kReady =
      cudaFuncSetAttribute(linear_stages<Config>, cudaFuncAttributeMaxDynamicSharedMemorySize, Config::kSharedBytes);
  HB_TRY(check(kReady, "shared memory of linear_stages"));
  return launch(
      linear_stages<Config>,
      {dim3(static_cast<unsigned>(args.split.runs)), Config::kThreads, static_cast<size_t>(Config::kSharedBytes)}, how,
      "linear_stages", args);
}

}  // namespace

Status run_stages(const Linear& linear, int rows, const void* x, float* partial, Launch how) {
  const LinearArgs args = linear_args(linear, x, partial, how);
  switch (padded_rows(rows)) {
    case 1: return launch_tokens<1>(args, how);
    case 2: return launch_tokens<2>(args, how);
    case 4: return launch_tokens<4>(args, how);
    case 8: return launch_tokens<8>(args, how);
    default: return launch_tokens<16>(args, how);
  }
}

}  // namespace halfbyte::cuda
