// Y = W x^ for prompt rows: the product of hundreds of columns, for FP4 and BF16 weights.
//
// Moves    per tile of rows the weights as decode reads them (FP4: N K 0.5625 bytes), per pair of panels x^ of all rows,
//          both from L2 but for the first reader; writes M x N FP32, or SiLU(gate) * up as the next linear's x^.
// Shapes   any N and K (padded by the packer), any M (padded by padded_prompt_rows).
// Order    of an output's sum: k ascending in FP32 of the tensor cores, 16 K an instruction. It depends on nothing else: not
//          on M, not on the tile, not on the row's neighbours.
// How      A thread block works on a panel of 128 outputs and 64, 128 or 256 rows at a time, a cluster of two on two panels
//          of the same rows: each copies half of x^ and hands it to both, which halves what the L2 cache must deliver.
//          Clusters take tile after tile. A producer warp copies steps of K into a ring and runs ahead into the next tile
//          while the results of the last one are written. Two warp groups of 64 outputs each bring the weights into
//          registers as wgmma's operand, one k16 ahead of the tensor cores: FP4 codes become BF16 and are multiplied by
//          their block scales (exact: at most 6 significant bits), BF16 comes by ldmatrix.
#include <cuda_bf16.h>

#include <algorithm>

#include "base/exp32.h"
#include "formats/bf16.h"
#include "kernels/cuda/bf16_layout.h"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_fp4.cuh"
#include "kernels/cuda/linear_lists.h"
#include "kernels/cuda/prompt_layout.h"
#include "kernels/cuda/ring.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace halfbyte::cuda {
namespace {

constexpr int kPair = 2;  // thread blocks of a cluster

}  // namespace

// The tile that leaves least of the device idle: rounds of clusters times their length, smaller tiles being less efficient.
// The numbers are the same for each.
int prompt_tile(int padded, int panels, int multiprocessors) {
  int best = 64;
  double least = 0;
  const int clusters = std::max(1, multiprocessors / kPair);
  for (const int tile : {256, 128, 64}) {
    if (padded % tile != 0) continue;
    const int tiles = padded / tile * ((panels + kPair - 1) / kPair);
    const int rounds = (tiles + clusters - 1) / clusters;
    const double cost = rounds * (tile + 24.0);
    if (least == 0 || cost < least) {
      least = cost;
      best = tile;
    }
  }
  return best;
}

namespace {

constexpr int kConsumerWarps = 8;
constexpr int kThreads = (4 + kConsumerWarps) * 32;
constexpr int kAtomBytes = 1024;
constexpr int kRowGroup = 8;  // tiles of rows that run side by side, so that their x^ stays in L2

// Where SiLU(gate) * up goes.
struct SiluTarget {
  const float* scales;   // of the outputs, gate then up; null: 1
  const float* bias;     // or null
  const float* x_scale;  // of the rows; null: 1
  uint8_t* x;
  float* x_scale_out;
  int k;  // outputs of gate
};

struct PromptArgs {
  const uint8_t* weights;
  const uint8_t* x;
  float* y;  // [padded][rows]
  Split split;
  Bf16Layout bf16;
  int steps;   // of K
  int panels;  // of 128 weight rows
  int rows, padded;
  int row_tiles, tiles;  // tiles: of a cluster
  SiluTarget silu;
};

// --- the weights of a step: how they come to shared memory, and how a lane makes its A fragments of them ---

// Both halves of a register times one scale byte.
__device__ __forceinline__ uint32_t scale_pair(uint32_t pair, uint32_t scale) {
  const __nv_bfloat162 product =
      __hmul2(reinterpret_cast<const __nv_bfloat162&>(pair), reinterpret_cast<const __nv_bfloat162&>(scale));
  return reinterpret_cast<const uint32_t&>(product);
}
// A byte of a word of scales, chosen by `select` into both halves, as BF16 times 2^kScaleExponent.
__device__ __forceinline__ uint32_t scale_of_byte(uint32_t bytes, uint32_t select) {
  return __byte_perm(bytes, 0, select) * 16u + (kScaleBias >> 16) * 0x00010001u;
}
constexpr uint32_t select_byte(int byte) {
  return 0x4040u | static_cast<uint32_t>(byte) | static_cast<uint32_t>(byte) << 8;
}

template <int kIndex>
__device__ __forceinline__ uint32_t word_of(const uint4& v) {
  return kIndex == 0 ? v.x : kIndex == 1 ? v.y : kIndex == 2 ? v.z : v.w;
}

// What a lane reads of 16 FP4 rows of a k step: its words of eight A fragments, and the scales of rows g and g + 8.
struct StepWords {
  uint4 words[2];
  uint4 scales;  // word b / 2: block b even of row g, odd of g, even of g + 8, odd of g + 8
  __device__ __forceinline__ void load(uint32_t tile, int lane) {
    words[0] = ptx::lds_v4(tile + lane * 16);
    words[1] = ptx::lds_v4(tile + 512 + lane * 16);
    scales = ptx::lds_v4(tile + kCodeBytes + (lane >> 2) * 16);
  }
};

// Walks over the k steps of one panel: in memory, step i of a run lies beside step i of the other runs.
struct PanelSteps {
  const PromptArgs& a;
  int run, index, count;
  __device__ __forceinline__ PanelSteps(const PromptArgs& args, int panel) : a(args) {
    const int first = panel * a.steps;
    run = a.split.owner(first);
    index = first - a.split.begin(run);
    count = a.split.begin(run + 1) - a.split.begin(run);
  }
  __device__ __forceinline__ const uint8_t* next() {
    if (index == count) {
      ++run;
      index = 0;
      count = a.split.begin(run + 1) - a.split.begin(run);
    }
    return a.weights + (static_cast<size_t>(index++) * a.split.runs + run) * kPanelStepBytes;
  }
};

// 128 outputs a thread block, 16 a warp.
struct Fp4Weights {
  static constexpr int kHalves = kStepK / kPromptK;
  static constexpr int kBytes = kPanelStepBytes;
  static constexpr uint32_t kBulkBytes = kBytes;  // that come by bulk copies, which one thread asks for
  static constexpr int kThreads = 1;              // that copy weights
  static constexpr bool kSilu = false;
  static constexpr float kFactor = kUnscale;

  struct Source {
    PanelSteps steps;
    __device__ __forceinline__ Source(const PromptArgs& a, int panel, int) : steps(a, min(panel, a.panels - 1)) {}
    __device__ __forceinline__ void send(uint32_t stage, uint32_t barrier) {
      ptx::cp_async_bulk(stage, steps.next(), kPanelStepBytes, barrier);
    }
  };
  struct Lane {
    uint32_t tile;
    int lane;
    StepWords step;
    __device__ __forceinline__ Lane(int warp, int lane_) : tile(warp * kStepBytes), lane(lane_) {}
    __device__ __forceinline__ void load(uint32_t stage) { step.load(stage + tile, lane); }
    template <int kIndex>
    __device__ __forceinline__ void fragment(uint32_t (&a)[4]) const {
      decode_word(a, word_of<kIndex % 4>(step.words[kIndex / 4]));
      const uint32_t bytes = word_of<kIndex / 2>(step.scales);
      const uint32_t low = scale_of_byte(bytes, select_byte(kIndex % 2)),
                     high = scale_of_byte(bytes, select_byte(2 + kIndex % 2));
      a[0] = scale_pair(a[0], low);
      a[1] = scale_pair(a[1], high);
      a[2] = scale_pair(a[2], low);
      a[3] = scale_pair(a[3], high);
    }
  };
};

// 64 outputs of gate and the same 64 of up a thread block. Warp w of group j has row g + 8 j of gate's tile w as row g of its
// fragment, and the same row of up's tile as row g + 8: the two meet in one lane.
struct Fp4GateUp {
  static constexpr int kHalves = kStepK / kPromptK;
  static constexpr int kBytes = kPanelStepBytes;
  static constexpr uint32_t kBulkBytes = kBytes;
  static constexpr int kThreads = 1;
  static constexpr bool kSilu = true;
  static constexpr float kFactor = kUnscale;
  static constexpr int kHalfPanel = kPanelStepBytes / 2;

  struct Source {
    PanelSteps gate, up;
    int gate_half, up_half;
    __device__ __forceinline__ Source(const PromptArgs& a, int panel, int)
        : gate(a, min(panel, a.silu.k / 64 - 1) / 2),
          up(a, (min(panel, a.silu.k / 64 - 1) + a.silu.k / 64) / 2),
          gate_half(min(panel, a.silu.k / 64 - 1) % 2 * kHalfPanel),
          up_half((min(panel, a.silu.k / 64 - 1) + a.silu.k / 64) % 2 * kHalfPanel) {}
    __device__ __forceinline__ void send(uint32_t stage, uint32_t barrier) {
      ptx::cp_async_bulk(stage, gate.next() + gate_half, kHalfPanel, barrier);
      ptx::cp_async_bulk(stage + kHalfPanel, up.next() + up_half, kHalfPanel, barrier);
    }
  };
  struct Lane {
    uint32_t tile, even, odd, left, own, turn;
    int lane;
    StepWords gate, up;
    __device__ __forceinline__ Lane(int warp, int lane_) : tile(warp % 4 * kStepBytes), lane(lane_) {
      const int j = warp / 4;
      even = select_byte(0) + j * 0x202u;
      odd = select_byte(1) + j * 0x202u;
      left = j == 0 ? 2 : 6;  // word_register of j and j + 2
      own = j == 0 ? ~0u : 0u;
      turn = j == 0 ? 12 : 24;
      asm volatile("" : "+r"(even), "+r"(odd), "+r"(left), "+r"(own), "+r"(turn));
    }
    __device__ __forceinline__ void load(uint32_t stage) {
      gate.load(stage + tile, lane);
      up.load(stage + kHalfPanel + tile, lane);
    }
    __device__ __forceinline__ void decode(uint32_t& low, uint32_t& high, uint32_t w, uint32_t scale) const {
      low = scale_pair(ptx::xor_and(w, w << left, kPairMask), scale);
      high = scale_pair(ptx::and_xor(w, own, __funnelshift_l(w, w, turn)) & kPairMask, scale);
    }
    template <int kIndex>
    __device__ __forceinline__ void fragment(uint32_t (&a)[4]) const {
      const uint32_t select = kIndex % 2 == 0 ? even : odd;
      decode(a[0], a[2], word_of<kIndex % 4>(gate.words[kIndex / 4]),
             scale_of_byte(word_of<kIndex / 2>(gate.scales), select));
      decode(a[1], a[3], word_of<kIndex % 4>(up.words[kIndex / 4]),
             scale_of_byte(word_of<kIndex / 2>(up.scales), select));
    }
  };
};

// Rows of 64 K, which decode keeps 1,024 K at a time; 16 bytes between them in shared memory, against bank conflicts. They
// come by cp.async, 16 bytes each.
template <bool kGateUp>
struct Bf16Rows {
  static constexpr int kHalves = 1;
  static constexpr int kPitch = kPromptRowBytes + 16;
  static constexpr int kBytes = kPanelRows * kPitch;
  static constexpr uint32_t kBulkBytes = 0;
  static constexpr int kThreads = 128;
  static constexpr bool kSilu = kGateUp;
  static constexpr float kFactor = 1.0f;

  struct Source {
    static constexpr int kPieces = kPromptRowBytes / 16;
    static_assert(kThreads / kPieces == kTileRows);  // a tile of the layout at once
    const Bf16Layout& layout;
    const uint8_t* weights;
    uint32_t to;  // of the thread in the first 16 rows
    int row, first, round, block;
    int k = 0;
    // Rows of shared memory 16 n .. 16 n + 15: tile n of the panel, or as Fp4GateUp pairs them: rows 8 j .. 8 j + 7 of
    // gate's tile n mod 4, then of up's.
    __device__ __forceinline__ Source(const PromptArgs& a, int panel, int thread) : layout(a.bf16), weights(a.weights) {
      row = thread / kPieces;
      to = static_cast<uint32_t>(row * kPitch + thread % kPieces * 16);
      weights += thread % kPieces * 16;
      first = kGateUp ? panel * 4 + (row < 8 ? 0 : a.silu.k / kTileRows) : panel * kPanelTiles;
      first = min(first, layout.tiles - 1);
      row = kGateUp ? row % 8 : row;
      round = first / layout.blocks;
      block = first % layout.blocks;
    }
    __device__ __forceinline__ void send(uint32_t stage, uint32_t barrier) {
      const int part = k / kBf16PartK, part_k = part + 1 == layout.parts ? layout.last_k : kBf16PartK;
      const size_t round_k = (static_cast<size_t>(layout.parts - 1) * kBf16PartK + layout.last_k) * layout.blocks;
      const size_t before = static_cast<size_t>(layout.blocks) * part * kBf16PartK;
#pragma unroll
      for (int n = 0; n < kPanelTiles; ++n) {
        int at = block + min(kGateUp ? n % 4 : n, layout.tiles - 1 - first), rounds = round;
        while (at >= layout.blocks) {
          at -= layout.blocks;
          ++rounds;
        }
        const int r = kGateUp ? row + n / 4 * 8 : row;
        const size_t from = (rounds * round_k + before + static_cast<size_t>(at) * part_k) * kBf16TileRows +
                            static_cast<size_t>(r) * part_k + k % kBf16PartK;
        ptx::cp_async_16(stage + to + n * (kTileRows * kPitch), weights + from * 2, true);
      }
      ptx::cp_async_arrive(barrier);
      k += kPromptK;
    }
  };
  struct Lane {
    uint32_t row, chunk[2];
    uint32_t at;
    __device__ __forceinline__ Lane(int warp, int lane) {
      const int r = (lane & 7) + ((lane >> 3) & 1) * 8;
      row = static_cast<uint32_t>((warp * kTileRows + r) * kPitch);
      chunk[0] = static_cast<uint32_t>(((lane >> 4) ^ (r & 1) * 4) * 16);
      chunk[1] = chunk[0] ^ 32;
    }
    __device__ __forceinline__ void load(uint32_t stage) { at = stage + row; }
    template <int kIndex>
    __device__ __forceinline__ void fragment(uint32_t (&a)[4]) const {
      ptx::ldmatrix_x4(a, at + (chunk[kIndex % 2] ^ (kIndex / 2 * 64)));
    }
  };
};

template <class Weights, int kTile>
struct PromptConfig {
  static constexpr int kHalf = kTile * kPromptRowBytes;  // x^ of 64 K
  static constexpr int kStageBytes = Weights::kBytes + Weights::kHalves * kHalf;
  static constexpr uint32_t kCopied = Weights::kBulkBytes + Weights::kHalves * kHalf;
  static constexpr int kFullArrivals = 1 + (Weights::kThreads > 1 ? Weights::kThreads : 0);
  static constexpr int kStages = std::min(8, (kMostSharedBytes - 6 * kAtomBytes) / kStageBytes);
  static constexpr int kExchange = Weights::kSilu ? 4 * 4 * 8 * 32 : 0;  // store_silu's, after the barriers
  static constexpr int kSharedBytes = kAtomBytes + kStages * kStageBytes + 2 * kStages * 8 + kExchange;
  static constexpr int kFragments = Weights::kHalves * 4;  // k16 of a step
  static_assert(kStages >= 3 && kSharedBytes <= kMostSharedBytes);
  static_assert(Weights::kBytes % kAtomBytes == 0 && kStageBytes % kAtomBytes == 0);
};

// The tile of a cluster: its first row, and the panel of this thread block.
struct TilePlace {
  int panel, first_row;
  __device__ __forceinline__ TilePlace(const PromptArgs& a, int tile, int kTile, int rank) {
    const int pairs = a.tiles / a.row_tiles;
    const int group = tile / (kRowGroup * pairs), rest = tile - group * kRowGroup * pairs;
    const int width = min(kRowGroup, a.row_tiles - group * kRowGroup);
    panel = rest / width * kPair + rank;
    first_row = (group * kRowGroup + rest % width) * kTile;
  }
};

// The producers: the steps of all tiles of the cluster, in order.
template <class Weights, int kTile>
__device__ __forceinline__ void produce(const PromptArgs& a, uint32_t ring, uint32_t full, uint32_t empty, int rank,
                                        int thread) {
  using Config = PromptConfig<Weights, kTile>;
  constexpr uint32_t kShare = Config::kHalf / kPair;
  RingPlace<Config::kStages> place{0, 0};
  int sent = 0;
#pragma unroll 1
  for (int tile = static_cast<int>(blockIdx.x) / kPair; tile < a.tiles; tile += static_cast<int>(gridDim.x) / kPair) {
    const TilePlace at(a, tile, kTile, rank);
    typename Weights::Source weights(a, at.panel, thread);
    const uint8_t* x = a.x + static_cast<size_t>(at.first_row) * kPromptRowBytes + rank * kShare;
    const size_t stride = static_cast<size_t>(a.padded) * kPromptRowBytes;
#pragma unroll 1
    for (int s = 0; s < a.steps; ++s) {
      if (sent >= Config::kStages) ptx::mbarrier_wait(empty + 8 * place.stage, place.parity ^ 1);
      sent = min(sent + 1, Config::kStages);
      const uint32_t barrier = full + 8 * place.stage, stage = ring + place.stage * Config::kStageBytes;
      if (thread == 0) {
        ptx::mbarrier_arrive_expect_tx(barrier, Config::kCopied);
#pragma unroll
        for (int h = 0; h < Weights::kHalves; ++h) {
          ptx::cp_async_bulk_both(stage + Weights::kBytes + h * Config::kHalf + rank * kShare, x, kShare, barrier);
          x += stride;
        }
      }
      weights.send(stage, barrier);
      place.advance();
    }
  }
}

// One k16: the product of the fragment that is ready, then the next fragment while the tensor cores work.
template <int kRegisters>
__device__ __forceinline__ void multiply(float (&d)[kRegisters], const uint32_t (&a)[4], uint32_t x) {
  ptx::wgmma_fence();
  ptx::wgmma_m64k16(d, a, ptx::wgmma_swizzled_rows(x));
  ptx::wgmma_commit();
}

// The sums of one tile. A stage is given back to both blocks of the cluster once its last product is done.
template <class Weights, int kTile>
__device__ __forceinline__ void consume(const PromptArgs& args, uint32_t ring, uint32_t full, uint32_t empty,
                                        RingPlace<PromptConfig<Weights, kTile>::kStages>& place,
                                        typename Weights::Lane& weights, int lane, float (&d)[kTile / 2]) {
  using Config = PromptConfig<Weights, kTile>;
  uint32_t a[2][4];
  int before = -1;  // stage whose last product may be under way
  const auto release = [&](int stage) {
    if constexpr (kEveryLaneArrives) {  // ring.cuh
      for (int block = 0; block < kPair; ++block) ptx::mbarrier_arrive_at(empty + 8 * stage, block);
    } else if (lane < kPair) {
      ptx::mbarrier_arrive_at(empty + 8 * stage, lane);
    }
  };
  int s = 0;
#pragma unroll 1
  do {
    ptx::mbarrier_wait(full + 8 * place.stage, place.parity);
    const uint32_t stage = ring + place.stage * Config::kStageBytes;
    const uint32_t x = stage + Weights::kBytes;
    weights.load(stage);
    weights.template fragment<0>(a[0]);
    const auto block = [&]<int kIndex>() {
      multiply(d, a[kIndex % 2], x + kIndex / 4 * Config::kHalf + kIndex % 4 * 32);
      ptx::wgmma_wait<1>();
      if constexpr (kIndex == 0) {
        if (before >= 0) release(before);
      }
      if constexpr (kIndex + 1 < Config::kFragments) weights.template fragment<kIndex + 1>(a[(kIndex + 1) % 2]);
    };
    block.template operator()<0>();
    block.template operator()<1>();
    block.template operator()<2>();
    block.template operator()<3>();
    if constexpr (Config::kFragments == 8) {
      block.template operator()<4>();
      block.template operator()<5>();
      block.template operator()<6>();
      block.template operator()<7>();
    }
    before = place.stage;
    place.advance();
  } while (++s < args.steps);
  ptx::wgmma_wait<0>();
  ptx::hold(d);
  release(before);
}

template <class Weights, int kTile>
__device__ __forceinline__ void store_sums(const PromptArgs& args, const TilePlace& at, int warp, int lane,
                                           const float (&d)[kTile / 2]) {
  const int first = at.panel * kPanelRows + warp * kTileRows + (lane >> 2);
  float* out = args.y + static_cast<size_t>(at.first_row + 2 * (lane & 3)) * args.rows + first;
  const bool low = first < args.rows, high = first + 8 < args.rows;
#pragma unroll
  for (int i = 0; i < kTile / 8; ++i) {
    float* to = out + static_cast<size_t>(8 * i) * args.rows;
    if (low) {
      to[0] = d[4 * i] * Weights::kFactor;
      to[args.rows] = d[4 * i + 1] * Weights::kFactor;
    }
    if (high) {
      to[8] = d[4 * i + 2] * Weights::kFactor;
      to[args.rows + 8] = d[4 * i + 3] * Weights::kFactor;
    }
  }
}

// n / d as the division does it, for d in [1, 2] and n zero or of moderate size; sets `rare` where it is neither.
__device__ __forceinline__ float divide_fast(float n, float d, bool& rare) {
  float r = ptx::rcp_approx_ftz(d);
  r = fmaf(r, fmaf(-d, r, 1.0f), r);
  float q = n * r;
  q = fmaf(fmaf(-d, q, n), r, q);
  q = fmaf(fmaf(-d, q, n), r, q);
  const float size = fabsf(n);
  rare |= !(size > 0x1p-90f && size < 0x1p120f) && n != 0.0f;
  return n == 0.0f ? n : q;
}
// silu(gate) * up of several, as silu_rows does it. Divisions with their branches would run one after another.
template <int kCount>
__device__ __forceinline__ void silu_times(const float (&gate)[kCount], const float (&up)[kCount], float (&v)[kCount]) {
  float n[kCount], d[kCount];
  bool rare = false;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float e = exp32(gate[i] >= 0.0f ? -gate[i] : gate[i]);
    n[i] = gate[i] >= 0.0f ? gate[i] : gate[i] * e;
    d[i] = 1.0f + e;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) v[i] = divide_fast(n[i], d[i], rare) * up[i];
  if (__any_sync(~0u, rare)) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) v[i] = n[i] / d[i] * up[i];
  }
}
// Two values rounded to BF16, times a power of two.
__device__ __forceinline__ uint32_t x_pair(float low, float high, uint32_t power) {
  const __nv_bfloat162 rounded = __floats2bfloat162_rn(low, high);
  return scale_pair(reinterpret_cast<const uint32_t&>(rounded), power);
}

// Warps w of both groups have the two halves of 32 bytes of x^: they meet in shared memory (`exchange`, kExchangeBytes each
// pair), because a sector that is written by halves costs a read of it when it is not in L2.
constexpr int kEights = 4;  // of rows at once
constexpr int kExchangeBytes = kEights * 8 * 32;
static_assert(PromptConfig<Fp4GateUp, 256>::kExchange == 4 * kExchangeBytes);

template <class Weights, int kTile>
__device__ __forceinline__ void store_silu(const PromptArgs& args, const TilePlace& at, uint32_t exchange, int warp,
                                           int lane, const float (&d)[kTile / 2]) {
  constexpr uint32_t kPower = ((127u + (Weights::kFactor == 1.0f ? 0 : kXExponent)) << 7) * 0x10001u;
  const SiluTarget& to = args.silu;
  const int pair = warp % 4, group = warp / 4, g = lane >> 2, t = lane & 3;
  const int output = at.panel * 64 + pair * 16 + group * 8 + g;
  if (at.panel * 64 >= to.k) return;  // all of the thread block
  // The power of two is exact wherever it is applied.
  const float gate_scale = Weights::kFactor * (to.scales != nullptr ? to.scales[output] : 1.0f),
              up_scale = Weights::kFactor * (to.scales != nullptr ? to.scales[to.k + output] : 1.0f);
  const float gate_bias = to.bias != nullptr ? to.bias[output] : 0.0f,
              up_bias = to.bias != nullptr ? to.bias[to.k + output] : 0.0f;
  // After the transposition: row g of each eight, outputs 2 t and 2 t + 1 of the group's chunk of 8.
  const uint32_t mine = exchange + pair * kExchangeBytes + g * 32 + ((group ^ g) & 1) * 16 + 4 * t;
  const uint32_t both = exchange + pair * kExchangeBytes + g * 32 + 8 * t;
  uint8_t* out = to.x + (static_cast<size_t>(at.panel) * args.padded + at.first_row + g) * kPromptRowBytes +
                 ((pair ^ (g >> 1)) * 32) + 8 * t;
#pragma unroll
  for (int i = 0; i < kTile / 8; i += kEights) {
    float gate[2 * kEights], up[2 * kEights], v[2 * kEights];
#pragma unroll
    for (int e = 0; e < 2 * kEights; ++e) {
      const int at_sum = 4 * (i + e / 2) + e % 2;
      gate[e] = gate_scale;
      up[e] = up_scale;
      if (to.x_scale != nullptr) {
        const float scale = to.x_scale[at.first_row + 8 * (i + e / 2) + 2 * t + e % 2];
        gate[e] *= scale;
        up[e] *= scale;
      }
      gate[e] *= d[at_sum];
      up[e] *= d[at_sum + 2];
      if (to.bias != nullptr) {
        gate[e] += gate_bias;
        up[e] += up_bias;
      }
    }
    silu_times(gate, up, v);
    ptx::bar_sync(1 + pair, 64);  // both have read what was here before
#pragma unroll
    for (int e = 0; e < kEights; ++e)
      ptx::sts(mine + e * 256, ptx::movmatrix_trans(x_pair(v[2 * e], v[2 * e + 1], kPower)));
    ptx::bar_sync(1 + pair, 64);
#pragma unroll
    for (int e = 0; e < kEights / 2; ++e) {
      const int eight = group * (kEights / 2) + e;
      *reinterpret_cast<uint2*>(out + (i + eight) * 8 * kPromptRowBytes) = ptx::lds_v2(both + eight * 256);
    }
  }
  if (at.panel == 0 && warp == 0)
    for (int i = lane; i < kTile; i += 32) to.x_scale_out[at.first_row + i] = 1.0f;
}

template <class Weights, int kTile>
__global__ void __launch_bounds__(kThreads, 1) linear_prompt(const __grid_constant__ PromptArgs args) {
  HB_FROM_SM90();
  using Config = PromptConfig<Weights, kTile>;
  extern __shared__ uint8_t shared[];
  const uint32_t ring = (ptx::shared_address(shared) + kAtomBytes - 1) / kAtomBytes * kAtomBytes;
  const uint32_t full = ring + Config::kStages * Config::kStageBytes, empty = full + 8 * Config::kStages;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x >> 5), 0), lane = threadIdx.x & 31;
  const int rank = static_cast<int>(ptx::cluster_rank());
  if (threadIdx.x == 0) {
    for (int s = 0; s < Config::kStages; ++s) {
      ptx::mbarrier_init(full + 8 * s, Config::kFullArrivals);
      ptx::mbarrier_init(empty + 8 * s, kPair * kConsumerWarps * kWarpArrivals);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  ptx::cluster_arrive();
  ptx::cluster_wait();
  ptx::griddepcontrol_wait();
  if (warp < 4) {
    ptx::setmaxnreg_dec<56>();
    if (static_cast<int>(threadIdx.x) < Weights::kThreads)
      produce<Weights, kTile>(args, ring, full, empty, rank, static_cast<int>(threadIdx.x));
    __syncwarp();
  } else {
    ptx::setmaxnreg_inc<224>();
    typename Weights::Lane weights(warp - 4, lane);
    RingPlace<Config::kStages> place{0, 0};
#pragma unroll 1
    for (int tile = static_cast<int>(blockIdx.x) / kPair; tile < args.tiles;
         tile += static_cast<int>(gridDim.x) / kPair) {
      float d[kTile / 2] = {};
      consume<Weights, kTile>(args, ring, full, empty, place, weights, lane, d);
      const TilePlace at(args, tile, kTile, rank);
      if constexpr (Weights::kSilu) {
        store_silu<Weights, kTile>(args, at, empty + 8 * Config::kStages, warp - 4, lane, d);
      } else {
        store_sums<Weights, kTile>(args, at, warp - 4, lane, d);
      }
    }
  }
  // The other block may still copy or arrive here.
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

template <class Weights, int kTile>
Status launch_tile(PromptArgs args, int outputs, int multiprocessors, const Launch& how) {
  using Config = PromptConfig<Weights, kTile>;
  static const cudaError_t kReady = cudaFuncSetAttribute(
      linear_prompt<Weights, kTile>, cudaFuncAttributeMaxDynamicSharedMemorySize, Config::kSharedBytes);
  HB_TRY(check(kReady, "shared memory of linear_prompt"));
  args.row_tiles = args.padded / kTile;
  args.tiles = args.row_tiles * ((outputs + kPair - 1) / kPair);
  const int clusters = std::min(args.tiles, std::max(1, multiprocessors / kPair));
  return launch(
      linear_prompt<Weights, kTile>,
      {dim3(static_cast<unsigned>(clusters * kPair)), kThreads, static_cast<size_t>(Config::kSharedBytes), kPair}, how,
      "linear_prompt", args);
}

// panels: of thread blocks.
template <class Weights>
Status launch_weights(const PromptArgs& args, int panels, int multiprocessors, int tile, const Launch& how) {
  if (tile == 0) tile = prompt_tile(args.padded, panels, multiprocessors);
  if (tile == 256 && args.padded % 256 == 0) return launch_tile<Weights, 256>(args, panels, multiprocessors, how);
  if (tile == 128 && args.padded % 128 == 0) return launch_tile<Weights, 128>(args, panels, multiprocessors, how);
  if (tile == 64) return launch_tile<Weights, 64>(args, panels, multiprocessors, how);
  return internal_error("a tile of " + std::to_string(tile) + " prompt rows in a pass of " +
                        std::to_string(args.padded));
}

PromptArgs prompt_args(const Linear& linear, int rows, const void* x) {
  PromptArgs args{};
  args.weights = linear.weights;
  args.x = static_cast<const uint8_t*>(x);
  args.rows = linear.rows;
  args.padded = padded_prompt_rows(rows);
  args.panels = (linear.rows + kPanelRows - 1) / kPanelRows;
  if (linear.fp4) {
    args.split = Split::of(args.panels * linear.k_steps, linear.runs);
    args.steps = linear.k_steps;
  } else {
    args.bf16 = {linear.runs, bf16_parts(linear.k), bf16_last_k(linear.k),
                 (linear.n + kBf16TileRows - 1) / kBf16TileRows};
    args.steps = (linear.k + kPromptK - 1) / kPromptK;
  }
  return args;
}

}  // namespace

Status run_prompt_wgmma(const Linear& linear, int rows, const void* x, float* y, Launch how, int tile) {
  PromptArgs args = prompt_args(linear, rows, x);
  args.y = y;
  return linear.fp4 ? launch_weights<Fp4Weights>(args, args.panels, linear.multiprocessors, tile, how)
                    : launch_weights<Bf16Rows<false>>(args, args.panels, linear.multiprocessors, tile, how);
}

Status run_prompt_silu(const Linear& gate_up, int rows, const void* x, const float* x_scale, const RowOutput& out,
                       Launch how, int tile) {
  PromptArgs args = prompt_args(gate_up, rows, x);
  const int k = gate_up.n / 2;
  args.silu = {
      gate_up.scales, gate_up.bias, gate_up.fp4 ? x_scale : nullptr, static_cast<uint8_t*>(out.x), out.x_scale, k};
  return gate_up.fp4 ? launch_weights<Fp4GateUp>(args, k / 64, gate_up.multiprocessors, tile, how)
                     : launch_weights<Bf16Rows<true>>(args, k / 64, gate_up.multiprocessors, tile, how);
}

}  // namespace halfbyte::cuda
