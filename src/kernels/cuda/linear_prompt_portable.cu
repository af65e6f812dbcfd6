// Y = W x^ for FP4 weights and prompt rows on devices without wgmma: linear_prompt's work with mma.sync.
//
// Moves    what linear_prompt moves; the weights of a panel once for every 64 or 128 rows.
// Shapes   those of linear_prompt.
// Order    of an output's sum: k ascending in FP32 of the tensor cores, 16 K an instruction, whatever M and the tile. An
//          instruction may add its 16 products otherwise than wgmma does: equal bits are not promised.
// How      A thread block has a panel of 128 outputs and a tile of 64 or 128 rows, a warp 32 outputs of half of the rows.
//          k steps of 128 (the packed weights as they are, and x^) come by cp.async into 2 or 3 stages; weights are decoded
//          and multiplied by their block scales in registers (exact), x^ comes by ldmatrix.
#include <cuda_bf16.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp4.cuh"
#include "kernels/cuda/linear_lists.h"
#include "kernels/cuda/prompt_layout.h"

namespace halfbyte::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kOutputTiles = 2;  // of 16, of a warp

struct PromptArgs {
  const uint8_t* weights;
  const uint8_t* x;
  float* y;  // [padded][rows]
  Split split;
  int k_steps, rows, padded;
};

template <int kTile>
struct PromptConfig {
  static constexpr int kHalfBytes = kTile * kPromptRowBytes;  // x^ of 64 K
  static constexpr int kStageBytes = kPanelStepBytes + 2 * kHalfBytes;
  static constexpr int kStages = kTile == 64 ? 3 : 2;
  static constexpr int kSharedBytes = kStages * kStageBytes;
  static constexpr int kColumnTiles = kTile / 16;  // of 8 rows, of a warp
  static_assert(kSharedBytes <= 99 * 1024);        // what every device from 8.0 on has
};

// Where a panel's k steps lie: step i of a run beside step i of the other runs.
struct StepPlace {
  const Split& split;
  int run, index;
  __device__ __forceinline__ StepPlace(const Split& of, int first) : split(of), run(of.owner(first)) {
    index = first - split.begin(run);
  }
  __device__ __forceinline__ size_t next() {
    if (index == split.begin(run + 1) - split.begin(run)) {
      ++run;
      index = 0;
    }
    return static_cast<size_t>(index++) * split.runs + run;
  }
};

__device__ __forceinline__ void copy_run(uint32_t to, const uint8_t* from, int bytes) {
  for (int at = static_cast<int>(threadIdx.x) * 16; at < bytes; at += kThreads * 16)
    ptx::cp_async_16(to + at, from + at);
}

template <class Config>
__device__ __forceinline__ void fetch(const PromptArgs& a, uint32_t stage, size_t place, int step, int first_row) {
  copy_run(stage, a.weights + place * kPanelStepBytes, kPanelStepBytes);
#pragma unroll
  for (int h = 0; h < 2; ++h)
    copy_run(stage + kPanelStepBytes + h * Config::kHalfBytes,
             a.x + (static_cast<size_t>(2 * step + h) * a.padded + first_row) * kPromptRowBytes, Config::kHalfBytes);
}

__device__ __forceinline__ uint32_t product(uint32_t pair, uint32_t scale) {
  const __nv_bfloat162 p =
      __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair), reinterpret_cast<const __nv_bfloat162&>(scale));
  return reinterpret_cast<const uint32_t&>(p);
}
// Byte `byte` of a word of scales as BF16 times 2^kScaleExponent, in both halves.
__device__ __forceinline__ uint32_t scale_pair(uint32_t bytes, int byte) {
  return __byte_perm(bytes, 0, 0x4040u | byte | (byte << 8)) * 16u + (kScaleBias >> 16) * 0x00010001u;
}

// A lane's words of a tile's k step, and the scales of its two rows.
struct TileWords {
  uint32_t words[8], scales[4];
  __device__ __forceinline__ void load(uint32_t tile, int lane) {
    const uint4 v[3] = {ptx::lds_v4(tile + lane * 16), ptx::lds_v4(tile + 512 + lane * 16),
                        ptx::lds_v4(tile + kCodeBytes + (lane >> 2) * 16)};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      uint32_t* to = i < 2 ? words + 4 * i : scales;
      to[0] = v[i].x;
      to[1] = v[i].y;
      to[2] = v[i].z;
      to[3] = v[i].w;
    }
  }
  // The 16-row operand of block b.
  __device__ __forceinline__ void operand(uint32_t (&a)[4], int b) const {
    decode_word(a, words[b]);
    const uint32_t low = scale_pair(scales[b / 2], b % 2), high = scale_pair(scales[b / 2], 2 + b % 2);
    a[0] = product(a[0], low);
    a[1] = product(a[1], high);
    a[2] = product(a[2], low);
    a[3] = product(a[3], high);
  }
};

template <int kTile>
__device__ __forceinline__ void multiply_stage(float (&d)[kOutputTiles][kTile / 16][4], uint32_t stage, int first_tile,
                                               int first_column, int lane) {
  using Config = PromptConfig<kTile>;
  TileWords tiles[kOutputTiles];
#pragma unroll
  for (int i = 0; i < kOutputTiles; ++i) tiles[i].load(stage + (first_tile + i) * kStepBytes, lane);
  const int row = first_column + (lane >> 4) * 8 + (lane & 7), half = (lane >> 3) & 1;
#pragma unroll
  for (int b = 0; b < kBlocksPerStep; ++b) {
    uint32_t a[kOutputTiles][4];
#pragma unroll
    for (int i = 0; i < kOutputTiles; ++i) tiles[i].operand(a[i], b);
    const uint32_t x = stage + kPanelStepBytes + b / 4 * Config::kHalfBytes + row * kPromptRowBytes +
                       (((b % 4 * 2 + half) ^ (row & 7)) << 4);
#pragma unroll
    for (int n = 0; n < Config::kColumnTiles; n += 2) {
      uint32_t v[4];
      ptx::ldmatrix_x4(v, x + n * 8 * kPromptRowBytes);
#pragma unroll
      for (int i = 0; i < kOutputTiles; ++i) {
        ptx::mma_m16n8k16_bf16(d[i][n], a[i][0], a[i][1], a[i][2], a[i][3], v[0], v[1]);
        ptx::mma_m16n8k16_bf16(d[i][n + 1], a[i][0], a[i][1], a[i][2], a[i][3], v[2], v[3]);
      }
    }
  }
}

template <int kTile>
__global__ void __launch_bounds__(kThreads) prompt_stages(const __grid_constant__ PromptArgs args) {
  using Config = PromptConfig<kTile>;
  extern __shared__ __align__(128) uint8_t shared[];
  const uint32_t stages = ptx::shared_address(shared);
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = static_cast<int>(threadIdx.x & 31);
  const int panel = blockIdx.y, first_row = static_cast<int>(blockIdx.x) * kTile;
  const int first_tile = warp % 4 * kOutputTiles, first_column = warp / 4 * (kTile / 2);
  StepPlace place(args.split, panel * args.k_steps);
  ptx::griddepcontrol_wait();
#pragma unroll 1
  for (int s = 0; s < Config::kStages - 1; ++s) {
    if (s < args.k_steps) fetch<Config>(args, stages + s * Config::kStageBytes, place.next(), s, first_row);
    ptx::cp_async_commit();
  }
  float d[kOutputTiles][Config::kColumnTiles][4] = {};
  int stage = 0;
#pragma unroll 1
  for (int s = 0; s < args.k_steps; ++s) {
    ptx::cp_async_wait<Config::kStages - 2>();
    __syncthreads();  // the stage is there, and all have done with the one before
    const int ahead = s + Config::kStages - 1;
    if (ahead < args.k_steps)
      fetch<Config>(args, stages + (stage == 0 ? Config::kStages - 1 : stage - 1) * Config::kStageBytes, place.next(),
                    ahead, first_row);
    ptx::cp_async_commit();
    multiply_stage<kTile>(d, stages + stage * Config::kStageBytes, first_tile, first_column, lane);
    if (++stage == Config::kStages) stage = 0;
  }
  float* out = args.y + static_cast<size_t>(first_row + first_column + 2 * (lane & 3)) * args.rows +
               panel * kPanelRows + first_tile * kTileRows + (lane >> 2);
#pragma unroll
  for (int i = 0; i < kOutputTiles; ++i) {
#pragma unroll
    for (int n = 0; n < Config::kColumnTiles; ++n) {
      float* at = out + static_cast<size_t>(8 * n) * args.rows + i * kTileRows;
      at[0] = d[i][n][0] * kUnscale;
      at[args.rows] = d[i][n][1] * kUnscale;
      at[8] = d[i][n][2] * kUnscale;
      at[args.rows + 8] = d[i][n][3] * kUnscale;
    }
  }
}

template <int kTile>
Status launch_tile(const PromptArgs& args, const Launch& how) {
  constexpr int kShared = PromptConfig<kTile>::kSharedBytes;
  static const cudaError_t kReady =
      cudaFuncSetAttribute(prompt_stages<kTile>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
  HB_TRY(check(kReady, "shared memory of prompt_stages"));
  const dim3 blocks(static_cast<unsigned>(args.padded / kTile), static_cast<unsigned>(args.rows / kPanelRows));
  return launch(prompt_stages<kTile>, {blocks, kThreads, static_cast<size_t>(kShared)}, how, "prompt_stages", args);
}

}  // namespace

Status run_fp4_prompt_portable(const Linear& linear, int rows, const void* x, float* y, Launch how, int tile) {
  const int padded = padded_prompt_rows(rows);
  const PromptArgs args{linear.weights,
                        static_cast<const uint8_t*>(x),
                        y,
                        Split::of(linear.rows / kPanelRows * linear.k_steps, linear.runs),
                        linear.k_steps,
                        linear.rows,
                        padded};
  return padded % 128 == 0 && tile != 64 ? launch_tile<128>(args, how) : launch_tile<64>(args, how);
}

}  // namespace halfbyte::cuda
