// y = W x for BF16 weights and 1 to 16 rows x: the head, and whole models in BF16.
//
// Moves   2 N K bytes of weights once, straight to registers (16 bytes a lane); x through L1; writes M x N FP32.
// Shapes  any N; K a multiple of 8.
// Order   warp w of 8 has the runs r of 128 K with r mod 8 = w, ascending, on the tensor cores (FP32 sums); then the
//         warps ascending. The same for every M: columns of an MMA do not meet.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_lists.h"

namespace halfbyte::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kTileRows16 = 2;           // 16-row tiles of a thread block
constexpr int kRows = 16 * kTileRows16;  // output rows of a thread block at once
constexpr int kChunk = 32;               // K of two MMAs, in an order that w and x share
constexpr int kUnroll = 4;               // chunks whose loads are on their way together

struct Bf16Args {
  const uint16_t* weights;  // [n][k]
  const uint16_t* x;        // [M][k]
  float* y;                 // [M][rows]
  int n, k, rows, columns;
  int tiles;  // of kRows rows
};

// A warp's weights of kUnroll chunks: rows g and g + 8 of each tile.
struct Bf16Weights {
  uint4 w[kUnroll][kTileRows16][2];

  __device__ __forceinline__ void load(const Bf16Args& a, int tile, int first_chunk, int chunks, int lane) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
      const int k = (first_chunk + u) * kChunk + t * 8;
#pragma unroll
      for (int i = 0; i < kTileRows16; ++i) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int row = tile * kRows + i * 16 + g + 8 * r;
          w[u][i][r] = first_chunk + u < chunks && k < a.k && row < a.n
                           ? ptx::ld_stream_v4(a.weights + static_cast<size_t>(row) * a.k + k)
                           : make_uint4(0, 0, 0, 0);
        }
      }
    }
  }
};

template <int kColumnTiles>
__device__ __forceinline__ void multiply_chunks(float (&sums)[kTileRows16][kColumnTiles][4], const Bf16Args& a,
                                                const Bf16Weights& weights, int first_chunk, int chunks, int lane) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const int chunk = first_chunk + u, k = chunk * kChunk + t * 8;
    if (chunk >= chunks) break;
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const int column = n * 8 + g;
      const uint4 x = column < a.columns && k < a.k
                          ? *reinterpret_cast<const uint4*>(a.x + static_cast<size_t>(column) * a.k + k)
                          : make_uint4(0, 0, 0, 0);
#pragma unroll
      for (int i = 0; i < kTileRows16; ++i) {
        const uint4 &low = weights.w[u][i][0], &high = weights.w[u][i][1];
        ptx::mma_m16n8k16_bf16(sums[i][n], low.x, high.x, low.y, high.y, x.x, x.y);
        ptx::mma_m16n8k16_bf16(sums[i][n], low.z, high.z, low.w, high.w, x.z, x.w);
      }
    }
  }
}

// [warp][row][column], one more float a row against bank conflicts.
template <int kColumnTiles>
using WarpSums = float[kWarps][kRows][kColumnTiles * 8 + 1];

template <int kColumnTiles>
__device__ __forceinline__ void store_tile(const Bf16Args& a, WarpSums<kColumnTiles>& shared,
                                           const float (&sums)[kTileRows16][kColumnTiles][4], int tile, int warp,
                                           int lane) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int i = 0; i < kTileRows16; ++i) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) shared[warp][i * 16 + g + 8 * (e / 2)][n * 8 + 2 * t + e % 2] = sums[i][n][e];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kRows * a.columns; i += kWarps * 32) {
    const int row = i % kRows, column = i / kRows;
    float sum = shared[0][row][column];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) sum += shared[w][row][column];
    if (tile * kRows + row < a.rows) a.y[static_cast<size_t>(column) * a.rows + tile * kRows + row] = sum;
  }
  __syncthreads();
}

template <int kColumnTiles>
__global__ void __launch_bounds__(kWarps * 32, 2) linear_bf16(const __grid_constant__ Bf16Args a) {
  __shared__ WarpSums<kColumnTiles> shared;
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = static_cast<int>(threadIdx.x & 31);
  const int chunks = (a.k + kChunk - 1) / kChunk;
  const int steps = (chunks + kWarps * kUnroll - 1) / (kWarps * kUnroll);
  Bf16Weights weights;
  weights.load(a, blockIdx.x, warp * kUnroll, chunks, lane);  // weights do not depend on the kernel ahead
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  for (int tile = blockIdx.x; tile < a.tiles; tile += gridDim.x) {
    float sums[kTileRows16][kColumnTiles][4] = {};
    for (int step = 0; step < steps; ++step) {
      const int first = (step * kWarps + warp) * kUnroll;
      multiply_chunks<kColumnTiles>(sums, a, weights, first, chunks, lane);
      const bool last = step + 1 == steps;
      const int next_tile = last ? tile + static_cast<int>(gridDim.x) : tile;
      if (next_tile < a.tiles)
        weights.load(a, next_tile, last ? warp * kUnroll : first + kWarps * kUnroll, chunks, lane);
    }
    store_tile<kColumnTiles>(a, shared, sums, tile, warp, lane);
  }
}

int multiprocessors() {
  static const int kCount = [] {
    int device = 0, count = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
  }();
  return kCount;
}

}  // namespace

Status run_bf16(const Linear& linear, int rows, const void* x, float* partial, Launch how) {
  const int tiles = (linear.n + kRows - 1) / kRows;
  const Bf16Args args{reinterpret_cast<const uint16_t*>(linear.weights),
                      static_cast<const uint16_t*>(x),
                      partial,
                      linear.n,
                      linear.k,
                      linear.rows,
                      padded_rows(rows),
                      tiles};
  const Grid grid{dim3(static_cast<unsigned>(std::min(tiles, 2 * multiprocessors()))), kWarps * 32};
  if (rows <= 8) return launch(linear_bf16<1>, grid, how, "linear_bf16", args);
  return launch(linear_bf16<2>, grid, how, "linear_bf16", args);
}

}  // namespace halfbyte::cuda
