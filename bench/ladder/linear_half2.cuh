// The CUDA-core GEMV of the ReSET kernel (nvfp4r) for W4A4, on the same split and with the same bits as linear_groups:
//   C1  all tokens of the batch in one block, so each weight is read once (off: a grid row of blocks for each token)
//   C2  several output rows a thread, with independent sums (off: one row)
//   C3  FP4 -> FP16 in registers and half2 FMA (off: dequantised tiles staged in shared memory, with a barrier)
// A half holds at most 8 exact products of two E2M1 values, so a block's dot is two halves added in FP32: exact.
//
// Moves   N K 0.5625 bytes of weights once (C1), the activation codes of each k step through L1 for every row tile.
// Layout  weights: steps in the order of linear_groups; in a step, lane 8 q + b has block b of rows 4 q .. 4 q + 3:
// rows 4 q and 4 q + 1 at
//         16 lane, the other two at 512 + 16 lane, 4 scale bytes at 1024 + 4 lane. Activations: codes as halves, [k
//         step][token][half h of the block][block][pairs (8h, 8h+4) .. (8h+3, 8h+7)], and FP32 scales [k
//         step][token][block].
// Order   as linear_groups with kKWarps groups: partial sum b of a row is lane b's.
#pragma once

#include <cuda_fp16.h>

#include "linear_groups.cuh"

namespace halfbyte::ladder {

template <int kTokens_, bool kAllTokens_, bool kSeveralRows_, bool kInRegisters_, int kKWarps_ = 2>
struct Half2Config {
  static constexpr int kTokens = kTokens_;                     // M
  static constexpr int kColumns = kAllTokens_ ? kTokens_ : 1;  // C1: tokens of a block
  static constexpr int kRows = kSeveralRows_ ? 4 : 1;          // C2: rows of a lane at a time
  static constexpr bool kInRegisters = kInRegisters_;          // C3
  static constexpr int kKWarps = kKWarps_;
  static constexpr int kWarps = kPanelTiles * kKWarps;
  static constexpr int kThreads = kWarps * 32;
  static constexpr int kPasses = 4 / kRows;  // a warp's 16 rows are 4 row groups x 4 rows
  static constexpr int kStageHalves = kInRegisters ? 0 : kTileRows * (kStepK + 8);
  static constexpr int kReduceFloats = 2 * (kKWarps - 1) * kPanelRows * kColumns;
  static constexpr int kSharedBytes = kReduceFloats * 4 + kWarps * kStageHalves * 2;
};

struct Half2Args {
  const uint8_t* weights;
  const uint8_t* x;  // codes as halves
  const float* x_scale;
  float* partial;
  Split split;
  int k_steps;
  int rows;
  FastDivision by_k_steps;
};

// Bytes of the activation codes of one k step.
HB_HOST_DEVICE constexpr int half2_x_chunk_bytes(int m) {
  return m * kStepK * 2;
}

template <class Config>
__global__ void __launch_bounds__(Config::kThreads, 1) linear_half2(const __grid_constant__ Half2Args args) {
  extern __shared__ __align__(128) uint8_t shared[];
  constexpr int kRows = Config::kRows;
  constexpr int kColumns = Config::kColumns;
  constexpr int kM = Config::kTokens;
  const int warp = threadIdx.x >> 5;
  const int lane = threadIdx.x & 31;
  const int group = warp / kPanelTiles;
  const int tile = warp % kPanelTiles;
  const int block = lane & 7;       // K block of the step
  const int row_group = lane >> 3;  // rows 4 row_group .. 4 row_group + 3 of the tile
  const int token = Config::kColumns == 1 ? blockIdx.y : 0;
  const int count = args.split.quotient + (blockIdx.x < args.split.remainder ? 1 : 0);
  const int begin = args.split.begin(blockIdx.x);
  const int first_panel = args.by_k_steps.quotient(begin);
  const int first_k = begin - first_panel * args.k_steps;
  int slot = blockIdx.x - args.split.owner(first_panel * args.k_steps);
  int i = group;
  // Weights two steps ahead.
  uint4 low[2], high[2];
  uint32_t scales[2];
  auto load = [&](int d, int index) {
    if (index >= count) return;
    const uint8_t* step = args.weights + (static_cast<size_t>(index) * gridDim.x + blockIdx.x) * kPanelStepBytes +
                          static_cast<size_t>(tile) * kStepBytes;
    low[d] = ptx::ld_stream_v4(step + lane * 16);         // rows 0 and 1 of the lane
    high[d] = ptx::ld_stream_v4(step + 512 + lane * 16);  // rows 2 and 3
    scales[d] = ptx::ld_stream(step + kCodeBytes + lane * 4);
  };
  load(0, i);
  load(1, i + Config::kKWarps);
  int piece_end = min(args.k_steps - first_k, count);
  for (int piece = 0;; ++piece) {
    float acc[4][kColumns] = {};
    for (; i < piece_end; i += Config::kKWarps) {
      int k = first_k + i;
      while (k >= args.k_steps) k -= args.k_steps;
      const uint32_t words[8] = {low[0].x, low[0].y, low[0].z, low[0].w, high[0].x, high[0].y, high[0].z, high[0].w};
      const uint32_t scale_bytes = scales[0];
      low[0] = low[1];
      high[0] = high[1];
      scales[0] = scales[1];
      load(1, i + 2 * Config::kKWarps);
      const uint8_t* x = args.x + static_cast<size_t>(k) * half2_x_chunk_bytes(kM) + token * 256 + block * 16;
      const float* x_scale = args.x_scale + (static_cast<size_t>(k) * kM + token) * kBlocksPerStep + block;
#pragma unroll
      for (int pass = 0; pass < Config::kPasses; ++pass) {
        half2 w[kRows][8];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            uint32_t a[4];
            decode_mixed(a, words[2 * (pass * kRows + r) + h]);
#pragma unroll
            for (int e = 0; e < 4; ++e) w[r][4 * h + e] = *reinterpret_cast<half2*>(&a[e]);
          }
        }
        if constexpr (!Config::kInRegisters) {
          // Staged: the warp's rows go to shared memory as halves and come back.
          half2* stage =
              reinterpret_cast<half2*>(shared + Config::kReduceFloats * 4) + warp * (Config::kStageHalves / 2);
          auto at = [&](int r) { return stage + (row_group * 4 + pass * kRows + r) * (kStepK / 2 + 4) + block * 8; };
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int e = 0; e < 8; ++e) at(r)[e] = w[r][e];
          }
          ptx::bar_sync(1 + group, kPanelTiles * 32);
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int e = 0; e < 8; ++e) {
              const uint32_t bits = ptx::lds(ptx::shared_address(&at(r)[e]));
              w[r][e] = *reinterpret_cast<const half2*>(&bits);
            }
          }
          ptx::bar_sync(1 + group, kPanelTiles * 32);
        }
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          const uint4 x0 = __ldg(reinterpret_cast<const uint4*>(x + c * 256));
          const uint4 x1 = __ldg(reinterpret_cast<const uint4*>(x + c * 256 + 128));
          const uint32_t xw[8] = {x0.x, x0.y, x0.z, x0.w, x1.x, x1.y, x1.z, x1.w};
          const float sx = __ldg(x_scale + c * kBlocksPerStep);
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            half2 sum = __hmul2(w[r][0], *reinterpret_cast<const half2*>(&xw[0]));
#pragma unroll
            for (int e = 1; e < 8; ++e) sum = __hfma2(w[r][e], *reinterpret_cast<const half2*>(&xw[e]), sum);
            const float dot = __low2float(sum) + __high2float(sum);
            const int row = pass * kRows + r;
            const float sw = row == 0   ? scale_of<0>(scale_bytes)
                             : row == 1 ? scale_of<1>(scale_bytes)
                             : row == 2 ? scale_of<2>(scale_bytes)
                                        : scale_of<3>(scale_bytes);
            acc[row][c] = fmaf(dot, sw * sx, acc[row][c]);
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 4; ++r) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float v = acc[r][c];
        v += __shfl_xor_sync(~0u, v, 1);
        v += __shfl_xor_sync(~0u, v, 2);
        v += __shfl_xor_sync(~0u, v, 4);
        acc[r][c] = v;
      }
    }
    float* buffer = reinterpret_cast<float*>(shared) + (piece & 1) * (Config::kReduceFloats / 2);
    if (Config::kKWarps > 1) {
      if (group != 0 && block == 0) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {
#pragma unroll
          for (int c = 0; c < kColumns; ++c)
            buffer[((group - 1) * kPanelRows + tile * kTileRows + row_group * 4 + r) * kColumns + c] = acc[r][c];
        }
      }
      __syncthreads();
    }
    if (group == 0 && block == 0) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
#pragma unroll
        for (int c = 0; c < kColumns; ++c) {
          float v = acc[r][c];
          for (int other = 1; other < Config::kKWarps; ++other) {
            v += buffer[((other - 1) * kPanelRows + tile * kTileRows + row_group * 4 + r) * kColumns + c];
          }
          const int row = (first_panel + piece) * kPanelRows + tile * kTileRows + row_group * 4 + r;
          args.partial[(static_cast<size_t>(slot) * kM + token + c) * args.rows + row] = v * kUnscale;
        }
      }
    }
    if (piece_end == count) break;
    piece_end = min(piece_end + args.k_steps, count);
    slot = 0;
  }
}

}  // namespace halfbyte::ladder
