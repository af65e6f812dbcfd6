// y = W x for BF16 weights and 1 to 16 rows x: the head, and whole models in BF16.
//
// Moves    2 N K bytes of weights once; x once a thread block (L2); writes M x N FP32.
// Shapes   any N; K a multiple of 8.
// Order    warp w of 8 has the runs r of 128 K with r mod 8 = w, ascending, on the tensor cores (FP32 sums); then the
//          warps ascending. The same for every M: columns of an MMA do not meet.
// How      a thread block a multiprocessor takes tiles of 16 rows; a producer warp brings 16 rows x 1,024 K at a time by
//          bulk copies into a ring, from which 8 warps multiply one run each. The first of them are asked for before
//          the wait for the kernel ahead.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_lists.h"

namespace halfbyte::cuda {
namespace {

constexpr int kWarps = 8;  // that multiply
constexpr int kThreads = (kWarps + 1) * 32;
constexpr int kRows = 16;   // of a tile
constexpr int kRun = 128;   // K that a warp takes at once
constexpr int kChunk = 32;  // K of two MMAs, in an order that w and x share
constexpr int kChunks = kRun / kChunk;
constexpr int kStageK = kWarps * kRun;
constexpr int kSkew = 64;  // bytes after each row of weights or x: rows g and g + 1 lie in the two halves of the banks
constexpr int kRowPitch = kStageK * 2 + kSkew;
constexpr int kStageBytes = kRows * kRowPitch;
constexpr int kMostStages = 6;  // of the ring
constexpr int kInFlight = 4;    // requested and not yet arrived; 2 to 6 were measured to be the same
constexpr int kMostShared = 227 * 1024;
constexpr int kBarrierBytes = 128;

struct Bf16Args {
  const uint16_t* weights;  // [n][k]
  const uint16_t* x;        // [M][k]
  float* y;                 // [M][rows]
  int n, k, rows, columns;
  int tiles;     // of kRows rows
  int parts;     // stages of a tile
  int stages;    // of the ring
  int inflight;  // stages requested and not yet arrived
  int x_pitch;   // bytes from row to row of x in shared memory; 0: x stays in global memory
};

// [barriers: full, empty][x][ring][sums]
__host__ __device__ constexpr int ring_offset(int x_pitch, int columns) {
  return (kBarrierBytes + x_pitch * columns + 127) / 128 * 128;
}
// Two buffers [warp][row][column], one more float a row against bank conflicts.
template <int kColumnTiles>
using WarpSums = float[kWarps][kRows][kColumnTiles * 8 + 1];

struct RingPlace {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance(int stages) {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Fills the ring: stages in the order (tile, part). One thread.
struct Producer {
  const Bf16Args& a;
  uint32_t full, empty, ring;
  int tile, part = 0;

  __device__ __forceinline__ bool more() const { return tile < a.tiles; }
  __device__ __forceinline__ void send(int stage) {
    const int rows = min(kRows, a.n - tile * kRows);
    const int first = part * kStageK;
    const uint32_t bytes = static_cast<uint32_t>(min(kStageK, a.k - first)) * 2;
    const uint16_t* from = a.weights + static_cast<size_t>(tile) * kRows * a.k + first;
    const uint64_t policy = ptx::createpolicy_evict_first();
    ptx::mbarrier_arrive_expect_tx(full + 8 * stage, bytes * rows);
#pragma unroll 1
    for (int r = 0; r < rows; ++r, from += a.k)
      ptx::cp_async_bulk_hint(ring + stage * kStageBytes + r * kRowPitch, from, bytes, full + 8 * stage, policy);
    if (++part == a.parts) {
      part = 0;
      tile += static_cast<int>(gridDim.x);
    }
  }

  __device__ __forceinline__ void run(int begun) {
    RingPlace place, behind;
    for (int i = 0; i < begun; ++i) place.advance(a.stages);
    const bool limited = a.inflight < a.stages;
    int sent = begun;
#pragma unroll 1
    for (; more(); ++sent) {
      if (sent >= a.stages) ptx::mbarrier_wait(empty + 8 * place.stage, place.parity ^ 1);
      if (limited) ptx::mbarrier_wait(full + 8 * behind.stage, behind.parity);
      send(place.stage);
      place.advance(a.stages);
      behind.advance(a.stages);
    }
    ptx::griddepcontrol_launch_dependents();  // not before the last request
  }
};

// A warp's run of one stage. x: of column g, null where there is none.
template <int kColumnTiles>
__device__ __forceinline__ void multiply_run(float (&sums)[kColumnTiles][4], uint32_t weights,
                                             const uint8_t* const (&x)[kColumnTiles], int first_k, int k, int lane) {
  const int t = lane & 3;
#pragma unroll
  for (int u = 0; u < kChunks; ++u) {
    const int at = first_k + u * kChunk + t * 8;
    const bool inside = at < k;
    const uint4 none = make_uint4(0, 0, 0, 0);
    const uint4 low = inside ? ptx::lds_v4(weights + u * kChunk * 2) : none;
    const uint4 high = inside ? ptx::lds_v4(weights + u * kChunk * 2 + 8 * kRowPitch) : none;
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const uint4 v = inside && x[n] != nullptr ? *reinterpret_cast<const uint4*>(x[n] + at * 2) : none;
      ptx::mma_m16n8k16_bf16(sums[n], low.x, high.x, low.y, high.y, v.x, v.y);
      ptx::mma_m16n8k16_bf16(sums[n], low.z, high.z, low.w, high.w, v.z, v.w);
    }
  }
}

// Adds the warps in order and writes a tile. Called by the kWarps warps; `shared` alternates between two buffers, so that
// one barrier is enough.
template <int kColumnTiles>
__device__ __forceinline__ void store_tile(const Bf16Args& a, WarpSums<kColumnTiles>& shared,
                                           const float (&sums)[kColumnTiles][4], int tile, int warp, int lane) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) shared[warp][g + 8 * (e / 2)][n * 8 + 2 * t + e % 2] = sums[n][e];
  }
  ptx::bar_sync(1, kWarps * 32);
  const int i = warp * 32 + lane, row = i % kRows, column = i / kRows;
  if (column >= a.columns || tile * kRows + row >= a.rows) return;
  float sum = shared[0][row][column];
#pragma unroll
  for (int w = 1; w < kWarps; ++w) sum += shared[w][row][column];
  a.y[static_cast<size_t>(column) * a.rows + tile * kRows + row] = sum;
}

// x into shared memory, by the kWarps warps.
__device__ __forceinline__ void copy_x(const Bf16Args& a, uint8_t* to) {
  const int pieces = a.k / 8;
  for (int column = 0; column < a.columns; ++column) {
    for (int i = static_cast<int>(threadIdx.x) - 32; i < pieces; i += kWarps * 32)
      *reinterpret_cast<uint4*>(to + column * a.x_pitch + i * 16) =
          __ldcg(reinterpret_cast<const uint4*>(a.x + static_cast<size_t>(column) * a.k) + i);
  }
  ptx::bar_sync(1, kWarps * 32);
}

template <int kColumnTiles>
__device__ __forceinline__ void consume(const Bf16Args& a, uint8_t* shared, uint32_t full, uint32_t empty) {
  const int warp = static_cast<int>(threadIdx.x >> 5) - 1, lane = static_cast<int>(threadIdx.x & 31);
  const int g = lane >> 2, t = lane & 3;
  ptx::griddepcontrol_wait();
  if (a.x_pitch != 0) copy_x(a, shared + kBarrierBytes);
  const uint8_t* x[kColumnTiles];
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    const int column = n * 8 + g;
    x[n] = column >= a.columns ? nullptr
           : a.x_pitch != 0    ? shared + kBarrierBytes + column * a.x_pitch
                               : reinterpret_cast<const uint8_t*>(a.x + static_cast<size_t>(column) * a.k);
  }
  const int ring_at = ring_offset(a.x_pitch, a.columns);
  const uint32_t place_in_stage = ptx::shared_address(shared + ring_at) + g * kRowPitch + (warp * kRun + t * 8) * 2;
  auto* buffers = reinterpret_cast<WarpSums<kColumnTiles>*>(shared + ring_at + a.stages * kStageBytes);
  RingPlace place;
  int buffer = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < a.tiles; tile += static_cast<int>(gridDim.x)) {
    float sums[kColumnTiles][4] = {};
#pragma unroll 1
    for (int part = 0; part < a.parts; ++part) {
      ptx::mbarrier_wait(full + 8 * place.stage, place.parity);
      multiply_run<kColumnTiles>(sums, place_in_stage + place.stage * kStageBytes, x, part * kStageK + warp * kRun, a.k,
                                 lane);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(empty + 8 * place.stage);
      place.advance(a.stages);
    }
    store_tile<kColumnTiles>(a, buffers[buffer], sums, tile, warp, lane);
    buffer ^= 1;
  }
}

template <int kColumnTiles>
__global__ void __launch_bounds__(kThreads, 1) linear_bf16(const __grid_constant__ Bf16Args a) {
  extern __shared__ __align__(128) uint8_t shared[];
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x >> 5), 0);
  const uint32_t full = ptx::shared_address(shared), empty = full + 8 * kMostStages;
  Producer producer{a, full, empty, full + ring_offset(a.x_pitch, a.columns), static_cast<int>(blockIdx.x)};
  int begun = 0;
  if (threadIdx.x == 0) {
    for (int s = 0; s < a.stages; ++s) ptx::mbarrier_init(full + 8 * s, 1);
    for (int s = 0; s < a.stages; ++s) ptx::mbarrier_init(empty + 8 * s, kWarps);
    ptx::fence_mbarrier_init();
    for (; begun < a.inflight && producer.more(); ++begun) producer.send(begun);
  }
  __syncthreads();
  if (warp != 0) {
    consume<kColumnTiles>(a, shared, full, empty);
  } else if (threadIdx.x == 0) {
    producer.run(begun);
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

template <int kColumnTiles>
Status launch_columns(Bf16Args& a, const Launch& how) {
  static const cudaError_t kReady =
      cudaFuncSetAttribute(linear_bf16<kColumnTiles>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostShared);
  HB_TRY(check(kReady, "shared memory of linear_bf16"));
  constexpr int kSums = 2 * static_cast<int>(sizeof(WarpSums<kColumnTiles>));
  const auto stages_beside = [&](int x_pitch) {
    return std::min(kMostStages, (kMostShared - kSums - ring_offset(x_pitch, a.columns)) / kStageBytes);
  };
  // x in shared memory where that leaves a ring.
  a.x_pitch = (a.k * 2 + 127) / 128 * 128 + kSkew;
  if (static_cast<int64_t>(a.x_pitch) * a.columns > kMostShared / 2 || stages_beside(a.x_pitch) < 3) a.x_pitch = 0;
  a.stages = stages_beside(a.x_pitch);
  a.inflight = std::min(a.stages, kInFlight);
  const int shared = ring_offset(a.x_pitch, a.columns) + a.stages * kStageBytes + kSums;
  return launch(
      linear_bf16<kColumnTiles>,
      {dim3(static_cast<unsigned>(std::min(a.tiles, multiprocessors()))), kThreads, static_cast<size_t>(shared)}, how,
      "linear_bf16", a);
}

}  // namespace

Status run_bf16(const Linear& linear, int rows, const void* x, float* partial, Launch how) {
  Bf16Args args{};
  args.weights = reinterpret_cast<const uint16_t*>(linear.weights);
  args.x = static_cast<const uint16_t*>(x);
  args.y = partial;
  args.n = linear.n;
  args.k = linear.k;
  args.rows = linear.rows;
  args.columns = padded_rows(rows);
  args.tiles = (linear.n + kRows - 1) / kRows;
  args.parts = (linear.k + kStageK - 1) / kStageK;
  return rows <= 8 ? launch_columns<1>(args, how) : launch_columns<2>(args, how);
}

}  // namespace halfbyte::cuda
