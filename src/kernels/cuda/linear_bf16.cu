// y = W x for BF16 weights and 1 to 16 rows x: the head, and whole models in BF16.
//
// Moves    2 N K bytes of weights once; x once a thread block (L2); writes M x N FP32.
// Shapes   any N; K a multiple of 8.
// Order    warp w of 8 has the runs r of 128 K with r mod 8 = w, ascending, on the tensor cores (FP32 sums); then the
//          warps ascending. The same for every M: columns of an MMA do not meet.
// How      a thread block a multiprocessor takes tiles of 16 rows; a producer warp brings 16 rows x 1,024 K at a time by
//          a bulk copy into a ring, from which 8 warps multiply one run each. The first of them are asked for before
//          the wait for the kernel ahead.
// Layout   bf16_layout.h: what the device reads at one time lies side by side, and rows g and g + 1 lie in the two halves of
//          the banks.
#include <algorithm>

#include "kernels/cuda/bf16_layout.h"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_lists.h"
#include "kernels/cuda/ring.cuh"

namespace halfbyte::cuda {
namespace {

constexpr int kWarps = 8;  // that multiply
constexpr int kThreads = (kWarps + 1) * 32;
constexpr int kRows = kBf16TileRows;
constexpr int kRun = 128;   // K that a warp takes at once
constexpr int kChunk = 32;  // K of two MMAs, in an order that w and x share
constexpr int kChunks = kRun / kChunk;
constexpr int kStageK = kWarps * kRun;
static_assert(kStageK == kBf16PartK);
constexpr int kSkew = 64;  // bytes after each row of x: rows g and g + 1 lie in the two halves of the banks
constexpr int kStageBytes = kRows * kStageK * 2;
constexpr int kMostStages = 6;  // of the ring
constexpr int kInFlight = 4;    // requested and not yet arrived; 2 to 6 were measured to be the same
constexpr int kBarrierBytes = 128;

struct Bf16Args {
  const uint8_t* weights;
  const uint16_t* x;  // [M][k]
  float* y;           // [M][rows]
  int n, k, rows, columns;
  int tiles;     // of kRows rows
  int parts;     // stages of a tile
  int last_k;    // K of the last of them, padded
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
    const int k = part + 1 == a.parts ? a.last_k : kStageK;
    const auto blocks = static_cast<size_t>(gridDim.x);
    const size_t tile_k = static_cast<size_t>(a.parts - 1) * kStageK + a.last_k;
    const size_t before = tile / gridDim.x * blocks * tile_k + blocks * part * kStageK + blockIdx.x * size_t(k);
    const auto bytes = static_cast<uint32_t>(kRows * k * 2);
    ptx::mbarrier_arrive_expect_tx(full + 8 * stage, bytes);
    ptx::cp_async_bulk_hint(ring + stage * kStageBytes, a.weights + before * (kRows * 2), bytes, full + 8 * stage,
                            ptx::createpolicy_evict_first());
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

// A warp's run of one stage. weights: of the lane in row g, whose rows are `pitch` bytes apart. x: of column g, null where
// there is none.
template <int kColumnTiles>
__device__ __forceinline__ void multiply_run(float (&sums)[kColumnTiles][4], uint32_t weights, int pitch,
                                             const uint8_t* const (&x)[kColumnTiles], int first_k, int k, int lane) {
  const int t = lane & 3, odd = (lane >> 2) & 1;
#pragma unroll
  for (int u = 0; u < kChunks; ++u) {
    const uint32_t from = weights + (u ^ odd) * kChunk * 2;
    const int at = first_k + u * kChunk + t * 8;
    const bool inside = at < k;
    const uint4 none = make_uint4(0, 0, 0, 0);
    const uint4 low = inside ? ptx::lds_v4(from) : none;
    const uint4 high = inside ? ptx::lds_v4(from + 8 * pitch) : none;
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
  const uint32_t ring = ptx::shared_address(shared + ring_at) + (warp * kRun + t * 8) * 2;
  auto* buffers = reinterpret_cast<WarpSums<kColumnTiles>*>(shared + ring_at + a.stages * kStageBytes);
  RingPlace place;
  int buffer = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x); tile < a.tiles; tile += static_cast<int>(gridDim.x)) {
    float sums[kColumnTiles][4] = {};
#pragma unroll 1
    for (int part = 0; part < a.parts; ++part) {
      ptx::mbarrier_wait(full + 8 * place.stage, place.parity);
      const int pitch = (part + 1 == a.parts ? a.last_k : kStageK) * 2;
      multiply_run<kColumnTiles>(sums, ring + place.stage * kStageBytes + g * pitch, pitch, x,
                                 part * kStageK + warp * kRun, a.k, lane);
      __syncwarp();
      arrive_for_warp(empty + 8 * place.stage, lane);
      place.advance(a.stages);
    }
    store_tile<kColumnTiles>(a, buffers[buffer], sums, tile, warp, lane);
    buffer ^= 1;
  }
}

template <int kColumnTiles>
__global__ void __launch_bounds__(kThreads, 1) linear_bf16(const __grid_constant__ Bf16Args a) {
  HB_FROM_SM90();
  extern __shared__ __align__(128) uint8_t shared[];
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x >> 5), 0);
  const uint32_t full = ptx::shared_address(shared), empty = full + 8 * kMostStages;
  Producer producer{a, full, empty, full + ring_offset(a.x_pitch, a.columns), static_cast<int>(blockIdx.x)};
  int begun = 0;
  if (threadIdx.x == 0) {
    for (int s = 0; s < a.stages; ++s) ptx::mbarrier_init(full + 8 * s, 1);
    for (int s = 0; s < a.stages; ++s) ptx::mbarrier_init(empty + 8 * s, kWarps * kWarpArrivals);
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

// A warp's run of one stage on its way to registers: what multiply_run reads from shared memory.
struct RunWords {
  uint4 low[kChunks], high[kChunks];

  __device__ __forceinline__ void load(const Bf16Args& a, int tile, int part, int warp, int lane) {
    const int g = lane >> 2, t = lane & 3, odd = g & 1;
    const int k = part + 1 == a.parts ? a.last_k : kStageK, pitch = k * 2;
    const auto blocks = static_cast<size_t>(gridDim.x);
    const size_t tile_k = static_cast<size_t>(a.parts - 1) * kStageK + a.last_k;
    const size_t before = tile / gridDim.x * blocks * tile_k + blocks * part * kStageK + blockIdx.x * size_t(k);
    const uint8_t* from = a.weights + before * (kRows * 2) + g * pitch + (warp * kRun + t * 8) * 2;
#pragma unroll
    for (int u = 0; u < kChunks; ++u) {
      const bool inside = part * kStageK + warp * kRun + u * kChunk + t * 8 < a.k;
      const uint8_t* at = from + (u ^ odd) * kChunk * 2;
      low[u] = inside ? ptx::ld_stream_v4(at) : make_uint4(0, 0, 0, 0);
      high[u] = inside ? ptx::ld_stream_v4(at + 8 * pitch) : make_uint4(0, 0, 0, 0);
    }
  }
};

// The portable form (kernel_set.h): weights straight to registers, one run ahead. The same products in the same order.
template <int kColumnTiles>
__global__ void __launch_bounds__(kWarps * 32) linear_bf16_registers(const __grid_constant__ Bf16Args a) {
  __shared__ WarpSums<kColumnTiles> buffers[2];
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = static_cast<int>(threadIdx.x & 31);
  const int g = lane >> 2, t = lane & 3;
  int tile = static_cast<int>(blockIdx.x), next_tile = tile, next_part = 0;
  RunWords next;
  next.load(a, tile, 0, warp, lane);
  ptx::griddepcontrol_wait();
  const uint8_t* x[kColumnTiles];
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    const int column = n * 8 + g;
    x[n] = column < a.columns ? reinterpret_cast<const uint8_t*>(a.x + static_cast<size_t>(column) * a.k) : nullptr;
  }
  int buffer = 0;
#pragma unroll 1
  for (; tile < a.tiles; tile += static_cast<int>(gridDim.x)) {
    float sums[kColumnTiles][4] = {};
#pragma unroll 1
    for (int part = 0; part < a.parts; ++part) {
      const RunWords words = next;
      if (++next_part == a.parts) {
        next_part = 0;
        next_tile += static_cast<int>(gridDim.x);
      }
      if (next_tile < a.tiles) next.load(a, next_tile, next_part, warp, lane);
#pragma unroll
      for (int u = 0; u < kChunks; ++u) {
        const int at = part * kStageK + warp * kRun + u * kChunk + t * 8;
        const uint4 low = words.low[u], high = words.high[u];
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) {
          const uint4 v =
              at < a.k && x[n] != nullptr ? *reinterpret_cast<const uint4*>(x[n] + at * 2) : make_uint4(0, 0, 0, 0);
          ptx::mma_m16n8k16_bf16(sums[n], low.x, high.x, low.y, high.y, v.x, v.y);
          ptx::mma_m16n8k16_bf16(sums[n], low.z, high.z, low.w, high.w, v.z, v.w);
        }
      }
    }
    store_tile<kColumnTiles>(a, buffers[buffer], sums, tile, warp, lane);
    buffer ^= 1;
  }
}

struct PackArgs {
  const uint4* from;  // [n][k / 8]
  uint4* to;
  int n, k, parts, last_k, blocks;
  size_t chunks;  // of `to`
};

// A thread a 16-byte chunk; zeros beyond N and K.
__global__ void pack_bf16_kernel(const __grid_constant__ PackArgs a) {
  const size_t tile_k = static_cast<size_t>(a.parts - 1) * kStageK + a.last_k;
  const size_t round_chunks = a.blocks * tile_k * kRows / 8, part_chunks = size_t(a.blocks) * kStageK * kRows / 8;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < a.chunks; i += size_t{gridDim.x} * blockDim.x) {
    const size_t round = i / round_chunks;
    size_t rest = i % round_chunks;
    const int part = min(static_cast<int>(rest / part_chunks), a.parts - 1);
    rest -= part * part_chunks;
    const int row_chunks = (part + 1 == a.parts ? a.last_k : kStageK) / 8;
    const auto block = static_cast<int>(rest / (kRows * row_chunks));
    const int row = static_cast<int>(rest / row_chunks) % kRows,
              chunk = static_cast<int>(rest % row_chunks) ^ (row & 1) * 4;
    const int n = (static_cast<int>(round) * a.blocks + block) * kRows + row, k = part * kStageK + chunk * 8;
    a.to[i] = n < a.n && k < a.k ? a.from[(static_cast<size_t>(n) * a.k + k) / 8] : make_uint4(0, 0, 0, 0);
  }
}

template <int kColumnTiles>
Status launch_columns(Bf16Args& a, int runs, const Launch& how) {
  const dim3 blocks(static_cast<unsigned>(runs));
  if (!active_kernels().ring)
    return launch(linear_bf16_registers<kColumnTiles>, {blocks, kWarps * 32}, how, "linear_bf16_registers", a);
  static const cudaError_t kReady =
      cudaFuncSetAttribute(linear_bf16<kColumnTiles>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostSharedBytes);
  HB_TRY(check(kReady, "shared memory of linear_bf16"));
  constexpr int kSums = 2 * static_cast<int>(sizeof(WarpSums<kColumnTiles>));
  const auto stages_beside = [&](int x_pitch) {
    return std::min(kMostStages, (kMostSharedBytes - kSums - ring_offset(x_pitch, a.columns)) / kStageBytes);
  };
  // x in shared memory where that leaves a ring.
  a.x_pitch = (a.k * 2 + 127) / 128 * 128 + kSkew;
  if (static_cast<int64_t>(a.x_pitch) * a.columns > kMostSharedBytes / 2 || stages_beside(a.x_pitch) < 3) a.x_pitch = 0;
  a.stages = stages_beside(a.x_pitch);
  a.inflight = std::min(a.stages, kInFlight);
  const int shared = ring_offset(a.x_pitch, a.columns) + a.stages * kStageBytes + kSums;
  return launch(linear_bf16<kColumnTiles>, {blocks, kThreads, static_cast<size_t>(shared)}, how, "linear_bf16", a);
}

}  // namespace

Result<LinearStorage> bf16_storage(int64_t n, int64_t k, int multiprocessors) {
  if (k % 8 != 0)
    return unsupported("a BF16 weight of " + std::to_string(n) + " x " + std::to_string(k) +
                       " on a CUDA device, expected a K that is a multiple of 8; run the model on the CPU");
  LinearStorage out;
  Linear& v = out.view;
  v.fp4 = false;
  v.n = static_cast<int>(n);
  v.k = static_cast<int>(k);
  v.rows = static_cast<int>(v.size().rows());
  v.multiprocessors = multiprocessors;
  v.runs = linear_runs(v.size(), multiprocessors);
  v.bytes = static_cast<size_t>(n * k) * 2;
  HB_ASSIGN(out.weights, DeviceBuffer::make(packed_bytes(v.size(), multiprocessors)));
  v.weights = out.weights.as<uint8_t>();
  return Result<LinearStorage>(std::move(out));
}

// rows: [n][k] BF16 on the device.
Status pack_bf16(LinearStorage& storage, const DeviceBuffer& rows) {
  const Linear& v = storage.view;
  const PackArgs args{rows.as<uint4>(), storage.weights.as<uint4>(), v.n, v.k, bf16_parts(v.k), bf16_last_k(v.k),
                      v.runs,           storage.weights.size() / 16};
  pack_bf16_kernel<<<1024, 256>>>(args);
  HB_TRY(check(cudaGetLastError(), "pack_bf16"));
  return check(cudaDeviceSynchronize(), "pack_bf16");
}

Status run_bf16(const Linear& linear, int rows, const void* x, float* partial, Launch how) {
  Bf16Args args{};
  args.weights = linear.weights;
  args.x = static_cast<const uint16_t*>(x);
  args.y = partial;
  args.n = linear.n;
  args.k = linear.k;
  args.rows = linear.rows;
  args.columns = padded_rows(rows);
  args.tiles = (linear.n + kRows - 1) / kRows;
  args.parts = bf16_parts(linear.k);
  args.last_k = bf16_last_k(linear.k);
  return rows <= 8 ? launch_columns<1>(args, linear.runs, how) : launch_columns<2>(args, linear.runs, how);
}

}  // namespace halfbyte::cuda
