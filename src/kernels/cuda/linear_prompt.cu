// Y = W x^ for FP4 weights and prompt rows: the product of hundreds of columns.
//
// Moves    per tile of rows the weights' N K 0.5625 bytes, per panel of 128 outputs x^ of all rows (both from L2 but for
//          the first reader); writes M x N FP32.
// Shapes   any N and K (padded to 128 by the packer), any M (padded by padded_prompt_rows).
// Order    of an output's sum: k ascending in FP32 of the tensor cores, 16 K an instruction. It depends on nothing else: not
//          on M, not on the tile, not on the row's neighbours.
// How      A thread block has a panel of 128 outputs and a tile of 64, 128 or 256 rows. A producer warp copies k steps of 128
//          (the decode kernel's packed weights as they are, and x^) into a ring. Two warp groups of 64 outputs each decode
//          the codes to BF16, multiply them by their block scales (exact: at most 6 significant bits) and give them as the
//          register operand of wgmma, one k16 ahead of the tensor cores.
#include <cuda_bf16.h>

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp4.cuh"
#include "kernels/cuda/linear_lists.h"
#include "kernels/cuda/prompt_layout.h"
#include "kernels/cuda/wgmma.cuh"

namespace halfbyte::cuda {
namespace {

constexpr int kConsumerGroups = 2;
constexpr int kThreads = (1 + kConsumerGroups) * 128;
constexpr int kMostShared = 227 * 1024;
constexpr int kAtomBytes = 1024;

struct PromptArgs {
  const uint8_t* weights;
  const uint8_t* x;
  float* y;  // [padded][rows]
  Split split;
  int k_steps, rows, padded;
};

template <int kTile>
struct PromptConfig {
  static constexpr int kHalf = kTile * kPromptRowBytes;  // x^ of 64 K
  static constexpr int kStageBytes = kPanelStepBytes + 2 * kHalf;
  static constexpr int kStages = std::min(8, (kMostShared - 2 * kAtomBytes) / kStageBytes);
  static constexpr int kSharedBytes = kAtomBytes + kStages * kStageBytes + 2 * kStages * 8;
  static_assert(kStages >= 3 && kSharedBytes <= kMostShared);
  static_assert(kPanelStepBytes % kAtomBytes == 0 && kStageBytes % kAtomBytes == 0);
};

// One thread: the panel's k steps, in order. In memory, step i of a run lies beside step i of the other runs.
template <class Config>
__device__ __forceinline__ void produce(const PromptArgs& a, uint32_t ring, uint32_t full, uint32_t empty, int panel,
                                        int first_row) {
  const int first = panel * a.k_steps;
  int run = a.split.owner(first);
  int index = first - a.split.begin(run);
  RingPlace<Config::kStages> place{0, 0};
#pragma unroll 1
  for (int s = 0; s < a.k_steps; ++s) {
    if (index == a.split.begin(run + 1) - a.split.begin(run)) {
      ++run;
      index = 0;
    }
    if (s >= Config::kStages) ptx::mbarrier_wait(empty + 8 * place.stage, place.parity ^ 1);
    const uint32_t barrier = full + 8 * place.stage, stage = ring + place.stage * Config::kStageBytes;
    ptx::mbarrier_arrive_expect_tx(barrier, Config::kStageBytes);
    ptx::cp_async_bulk(stage, a.weights + (static_cast<size_t>(index) * a.split.runs + run) * kPanelStepBytes,
                       kPanelStepBytes, barrier);
#pragma unroll
    for (int h = 0; h < 2; ++h)
      ptx::cp_async_bulk(stage + kPanelStepBytes + h * Config::kHalf,
                         a.x + (static_cast<size_t>(2 * s + h) * a.padded + first_row) * kPromptRowBytes, Config::kHalf,
                         barrier);
    ++index;
    place.advance();
  }
}

// Both halves of a register times one scale byte.
__device__ __forceinline__ uint32_t scale_pair(uint32_t pair, uint32_t scale) {
  const __nv_bfloat162 product =
      __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair), reinterpret_cast<const __nv_bfloat162&>(scale));
  return reinterpret_cast<const uint32_t&>(product);
}

// Byte kByte of a word of scales as BF16 times 2^kScaleExponent, in both halves.
template <int kByte>
__device__ __forceinline__ uint32_t scale_of_byte(uint32_t bytes) {
  constexpr uint32_t kSelect = 0x4040u | kByte | (kByte << 8);
  return __byte_perm(bytes, 0, kSelect) * 16u + (kScaleBias >> 16) * 0x00010001u;
}

// What a lane reads of a k step: its words of eight A fragments, and the scales of its two rows.
struct StepWords {
  uint4 words[2];
  uint4 scales;  // word b / 2: block b even of row g, odd of g, even of g + 8, odd of g + 8
  __device__ __forceinline__ void load(uint32_t tile, int lane) {
    words[0] = ptx::lds_v4(tile + lane * 16);
    words[1] = ptx::lds_v4(tile + 512 + lane * 16);
    scales = ptx::lds_v4(tile + kCodeBytes + (lane >> 2) * 16);
  }
};

template <int kIndex>
__device__ __forceinline__ uint32_t word_of(const uint4& v) {
  return kIndex == 0 ? v.x : kIndex == 1 ? v.y : kIndex == 2 ? v.z : v.w;
}

template <int kBlockIndex>
__device__ __forceinline__ void weights_of(uint32_t (&a)[4], const StepWords& step) {
  decode_word(a, word_of<kBlockIndex % 4>(step.words[kBlockIndex / 4]));
  const uint32_t bytes = word_of<kBlockIndex / 2>(step.scales);
  const uint32_t low = scale_of_byte<kBlockIndex % 2>(bytes), high = scale_of_byte<2 + kBlockIndex % 2>(bytes);
  a[0] = scale_pair(a[0], low);
  a[1] = scale_pair(a[1], high);
  a[2] = scale_pair(a[2], low);
  a[3] = scale_pair(a[3], high);
}

// One k16: the product of the fragment that is ready, then the next fragment while the tensor cores work. `ready` and
// `next` change places; the registers of `next` are free when the product before this one is done.
template <int kRegisters>
__device__ __forceinline__ void multiply(float (&d)[kRegisters], const uint32_t (&a)[4], uint32_t x) {
  ptx::wgmma_fence();
  ptx::wgmma_m64k16(d, a, ptx::wgmma_swizzled_rows(x));
  ptx::wgmma_commit();
}

template <int kTile>
__device__ __forceinline__ void consume(const PromptArgs& args, uint32_t ring, uint32_t full, uint32_t empty, int warp,
                                        int lane, float (&d)[kTile / 2]) {
  using Config = PromptConfig<kTile>;
  RingPlace<Config::kStages> place{0, 0};
  uint32_t a[2][4];
  int before = -1;  // stage whose last product may be under way
  int s = 0;
#pragma unroll 1
  do {
    ptx::mbarrier_wait(full + 8 * place.stage, place.parity);
    const uint32_t stage = ring + place.stage * Config::kStageBytes;
    const uint32_t x = stage + kPanelStepBytes;
    StepWords step;
    step.load(stage + warp * kStepBytes, lane);
    weights_of<0>(a[0], step);
    const auto block = [&]<int kBlockIndex>() {
      multiply(d, a[kBlockIndex % 2], x + kBlockIndex / 4 * Config::kHalf + kBlockIndex % 4 * 32);
      ptx::wgmma_wait<1>();
      if constexpr (kBlockIndex == 0) {
        if (before >= 0 && lane == 0) ptx::mbarrier_arrive(empty + 8 * before);
      }
      if constexpr (kBlockIndex < 7) weights_of<kBlockIndex + 1>(a[(kBlockIndex + 1) % 2], step);
    };
    block.template operator()<0>();
    block.template operator()<1>();
    block.template operator()<2>();
    block.template operator()<3>();
    block.template operator()<4>();
    block.template operator()<5>();
    block.template operator()<6>();
    block.template operator()<7>();
    before = place.stage;
    place.advance();
  } while (++s < args.k_steps);
  ptx::wgmma_wait<0>();
  ptx::hold(d);
}

template <int kTile>
__global__ void __launch_bounds__(kThreads, 1) linear_prompt(const __grid_constant__ PromptArgs args) {
  HB_FROM_SM90();
  using Config = PromptConfig<kTile>;
  extern __shared__ uint8_t shared[];
  const uint32_t ring = (ptx::shared_address(shared) + kAtomBytes - 1) / kAtomBytes * kAtomBytes;
  const uint32_t full = ring + Config::kStages * Config::kStageBytes, empty = full + 8 * Config::kStages;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x >> 5), 0), lane = threadIdx.x & 31;
  const int panel = blockIdx.y, first_row = blockIdx.x * kTile;
  if (threadIdx.x == 0) {
    for (int s = 0; s < Config::kStages; ++s) {
      ptx::mbarrier_init(full + 8 * s, 1);
      ptx::mbarrier_init(empty + 8 * s, kConsumerGroups * 4);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::griddepcontrol_wait();
  if (warp < 4) {
    ptx::setmaxnreg_dec<24>();
    if (threadIdx.x == 0) produce<Config>(args, ring, full, empty, panel, first_row);
    return;
  }
  ptx::setmaxnreg_inc<240>();
  const int tile = warp - 4;  // of 16 outputs in the panel
  float d[kTile / 2] = {};
  consume<kTile>(args, ring, full, empty, tile, lane, d);
  float* out = args.y + static_cast<size_t>(first_row + 2 * (lane & 3)) * args.rows + panel * kPanelRows +
               tile * kTileRows + (lane >> 2);
#pragma unroll
  for (int i = 0; i < kTile / 8; ++i) {
    float* at = out + static_cast<size_t>(8 * i) * args.rows;
    at[0] = d[4 * i] * kUnscale;
    at[args.rows] = d[4 * i + 1] * kUnscale;
    at[8] = d[4 * i + 2] * kUnscale;
    at[args.rows + 8] = d[4 * i + 3] * kUnscale;
  }
}

template <int kTile>
Status launch_tile(const PromptArgs& args, const Launch& how) {
  using Config = PromptConfig<kTile>;
  static const cudaError_t kReady =
      cudaFuncSetAttribute(linear_prompt<kTile>, cudaFuncAttributeMaxDynamicSharedMemorySize, Config::kSharedBytes);
  HB_TRY(check(kReady, "shared memory of linear_prompt"));
  const dim3 blocks(static_cast<unsigned>(args.padded / kTile), static_cast<unsigned>(args.rows / kPanelRows));
  return launch(linear_prompt<kTile>, {blocks, kThreads, static_cast<size_t>(Config::kSharedBytes)}, how,
                "linear_prompt", args);
}

}  // namespace

// The tile that leaves least of the device idle: rounds of thread blocks times their length, smaller tiles being less
// efficient. The numbers are the same for each.
int prompt_tile(int padded, int panels, int multiprocessors) {
  int best = 64;
  double least = 0;
  for (const int tile : {256, 128, 64}) {
    if (padded % tile != 0) continue;
    const int blocks = padded / tile * panels;
    const int rounds = (blocks + multiprocessors - 1) / multiprocessors;
    const double cost = rounds * (tile + 24.0);
    if (least == 0 || cost < least) {
      least = cost;
      best = tile;
    }
  }
  return best;
}

Status run_fp4_prompt(const Linear& linear, int rows, const void* x, float* y, Launch how, int tile) {
  const int padded = padded_prompt_rows(rows), panels = linear.rows / kPanelRows;
  const PromptArgs args{linear.weights,
                        static_cast<const uint8_t*>(x),
                        y,
                        Split::of(panels * linear.k_steps, linear.runs),
                        linear.k_steps,
                        linear.rows,
                        padded};
  if (tile == 0) tile = prompt_tile(padded, panels, linear.multiprocessors);
  if (tile == 256 && padded % 256 == 0) return launch_tile<256>(args, how);
  if (tile == 128 && padded % 128 == 0) return launch_tile<128>(args, how);
  if (tile == 64) return launch_tile<64>(args, how);
  return internal_error("a tile of " + std::to_string(tile) + " prompt rows in a pass of " + std::to_string(padded));
}

}  // namespace halfbyte::cuda
