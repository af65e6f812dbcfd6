#include "kernels/cuda/linear_fp4.cuh"

#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/linear_lists.h"

namespace halfbyte::cuda {
namespace {

// x^ of the longest run.
int own_x_bytes(const Split& split, int k_steps, int tokens) {
  return std::min(split.quotient + (split.remainder > 0 ? 1 : 0), k_steps) * x_chunk_bytes(tokens);
}

template <int kTokens, class Source>
Status launch_tokens(const LinearArgs& args, const Source& source, const Launch& how) {
  using Config = LinearConfig<kTokens, kRingStages, kRingInFlight>;
  static const cudaError_t kReady =
      cudaFuncSetAttribute(linear_fp4<Config, Source>, cudaFuncAttributeMaxDynamicSharedMemorySize, kMostSharedBytes);
  HB_TRY(check(kReady, "shared memory of linear_fp4"));
  const int own_x = Source::kOwn ? own_x_bytes(args.split, args.k_steps, kTokens) : 0;
  return launch(linear_fp4<Config, Source>,
                {dim3(static_cast<unsigned>(args.split.runs)), Config::kThreads,
                 static_cast<size_t>(Config::kSharedBytes + own_x)},
                how, "linear_fp4", args, source);
}

// The word map's inverse, handed to kernels by value.
struct WordColumns {
  uint32_t of_bit[32];
};
WordColumns word_columns() {
  WordColumns c{};
  std::copy(kWordColumns.begin(), kWordColumns.end(), c.of_bit);
  return c;
}

struct PackArgs {
  const uint8_t* codes;   // [n][code_bytes]
  const uint8_t* scales;  // [n][blocks]
  const uint8_t* lowest;  // MXFP4, [n]: the E8M0 byte that is stored as exponent 0
  uint8_t* out;
  WordColumns columns;
  Split split;
  int n, k_steps, code_bytes, blocks, block;  // block: 16 or 32
};

// Step, tile and memory of a thread block: blockIdx.x is the k step of all panels, blockIdx.y the tile.
__device__ __forceinline__ uint8_t* packed_step(const PackArgs& a, int panel_step, int tile) {
  const int run = a.split.owner(panel_step);
  const size_t place = static_cast<size_t>(panel_step - a.split.begin(run)) * a.split.runs + run;
  return a.out + place * kPanelStepBytes + tile * kStepBytes;
}

__device__ __forceinline__ uint8_t stored_scale(const PackArgs& a, int row, int block16) {
  const int block = block16 * kBlock / a.block;
  if (row >= a.n || block >= a.blocks) return 15 << 3;
  const uint8_t code = a.scales[static_cast<size_t>(row) * a.blocks + block];
  if (a.block == kBlock) return scale_byte(code);
  const int exponent = static_cast<int>(code) - a.lowest[row];
  return static_cast<uint8_t>((exponent < 0 ? 0 : exponent) << 3);
}

__device__ __forceinline__ uint32_t code_at(const PackArgs& a, int row, int k) {
  const int block = k / a.block;
  if (row >= a.n || block >= a.blocks) return 0;
  if (a.block == kBlock && a.scales[static_cast<size_t>(row) * a.blocks + block] == 0) return 0;
  return (a.codes[static_cast<size_t>(row) * a.code_bytes + k / 2] >> (k % 2 * 4)) & 15u;
}

// 256 threads: the words of a step, then its scales.
__global__ void pack_steps(const __grid_constant__ PackArgs a) {
  const int panel_step = blockIdx.x, tile = blockIdx.y;
  const int first_row = (panel_step / a.k_steps) * kPanelRows + tile * kTileRows;
  const int s = panel_step % a.k_steps;
  uint8_t* step = packed_step(a, panel_step, tile);
  const int lane = threadIdx.x & 31, j = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  uint32_t word = 0;
#pragma unroll
  for (int e = 0; e < 2; ++e) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t code = code_at(a, first_row + g + (i & 1) * 8, s * kStepK + j * kBlock + t * 2 + e + (i >> 1) * 8);
#pragma unroll
      for (int b = 0; b < 4; ++b) word ^= ((code >> b) & 1u) != 0 ? a.columns.of_bit[4 * (i + 4 * e) + b] : 0u;
    }
  }
  *reinterpret_cast<uint32_t*>(step + (j / 4) * 512 + lane * 16 + (j % 4) * 4) = word;
  if (threadIdx.x >= kTileRows * kBlocksPerStep) return;
  const int row = threadIdx.x / kBlocksPerStep, b = threadIdx.x % kBlocksPerStep;
  step[kCodeBytes + (row & 7) * 16 + (b / 2) * 4 + (b % 2) + (row < 8 ? 0 : 2)] =
      stored_scale(a, first_row + row, s * kBlocksPerStep + b);
}

__device__ __forceinline__ uint64_t mix(uint64_t v) {  // splitmix64's finisher
  v = (v ^ (v >> 30)) * 0xBF58476D1CE4E5B9ull;
  v = (v ^ (v >> 27)) * 0x94D049BB133111EBull;
  return v ^ (v >> 31);
}

// Any word is eight codes; scale bytes get the exponent of 1 and, for NVFP4, any mantissa.
__global__ void random_steps(uint8_t* out, size_t words, uint64_t seed, uint32_t scale_mask) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < words; i += size_t{gridDim.x} * blockDim.x) {
    const auto bits = static_cast<uint32_t>(mix(seed * 0x9E3779B97F4A7C15ull + i));
    const bool is_scale = i * 4 % kStepBytes >= kCodeBytes;
    reinterpret_cast<uint32_t*>(out)[i] = is_scale ? 0x78787878u | (bits & scale_mask) : bits;
  }
}

// The lowest E8M0 byte of a part that is stored: 31 below the highest.
Result<uint8_t> lowest_exponent(const LinearPart& part) {
  const auto* scales = static_cast<const uint8_t*>(part.block_scales);
  const int64_t blocks = blocks_per_row(part.format, part.k) * part.n;
  const uint8_t highest = blocks == 0 ? uint8_t{127} : *std::max_element(scales, scales + blocks);
  const int lowest = std::max(0, highest - 31);
  const auto* codes = static_cast<const uint8_t*>(part.codes);
  for (int64_t b = 0; b < blocks; ++b) {
    if (scales[b] >= lowest) continue;
    for (int i = 0; i < 16; ++i) {
      if ((codes[b * 16 + i] & 0x77) != 0)
        return unsupported("an MXFP4 weight whose block scales span more than 2^31 (2^" +
                           std::to_string(highest - 127) + " to 2^" + std::to_string(scales[b] - 127) +
                           "), which the CUDA kernels do not hold; run the model on the CPU");
    }
  }
  return static_cast<uint8_t>(lowest);
}

// Whether a linear can make x^ of its run for itself: every thread block its share of one row, the same one for all panels.
bool makes_own_x(const Linear& linear) {
  if (!linear.fp4 || linear_kernel_of(linear, 1) != LinearKernel::kRing) return false;
  const Split split = Split::of(linear.rows / kPanelRows * linear.k_steps, linear.runs);
  return LinearConfig<1, kRingStages, kRingInFlight>::kSharedBytes + own_x_bytes(split, linear.k_steps, 1) <=
         kMostSharedBytes;
}

// Whether a row operation leaves its row open: for one row. Two are too much to read for every thread block (8B: 2.04 ms
// a step instead of 2.02). Where K has an odd number of k steps, a run longer than that would give one group's to the other.
bool opens(const Linear& linear, int rows) {
  if (padded_rows(rows) != 1 || !active_kernels().clusters || !makes_own_x(linear)) return false;
  const Split split = Split::of(linear.rows / kPanelRows * linear.k_steps, linear.runs);
  return linear.k_steps % kGroupsOfWarps == 0 || split.quotient < linear.k_steps;
}

// The merge reads all parts of a share: faster than a kernel of its own for one row and one k step a consumer warp.
bool merges(const Linear& linear, int rows, const RowOutput& out) {
  if (rows > 1 || needs_row_amax(out.mode, out.static_alpha) || !makes_own_x(linear)) return false;
  const Split split = Split::of(linear.rows / kPanelRows * linear.k_steps, linear.runs);
  return own_x_bytes(split, linear.k_steps, 1) <= 8 * x_chunk_bytes(1);
}

// The linear behind a row operation.
Status run_behind(const RowOutput& out, const Linear& linear, const OpenX& open, int rows, float* partial, Launch how) {
  return out.open ? launch_tokens<1>(linear_args(linear, nullptr, partial, how), open, how)
                  : run_linear(linear, rows, out.x, partial, how);
}

}  // namespace

Result<LinearStorage> fp4_storage(int64_t n, int64_t k, int multiprocessors) {
  LinearStorage out;
  Linear& v = out.view;
  v.n = static_cast<int>(n);
  v.k = static_cast<int>(k);
  v.rows = static_cast<int>(v.size().rows());
  v.k_steps = static_cast<int>(v.size().k_steps());
  v.multiprocessors = multiprocessors;
  const int panels = v.rows / kPanelRows, total = panels * v.k_steps;
  v.runs = linear_runs(v.size(), multiprocessors);
  v.bytes = static_cast<size_t>(total) * kPanelStepBytes;
  const Split split = Split::of(total, v.runs);
  if (split.slots(v.k_steps) > kMaxSlots)
    return internal_error("a linear of " + std::to_string(n) + " x " + std::to_string(k) + " would have " +
                          std::to_string(split.slots(v.k_steps)) + " partial sums an output");
  HB_ASSIGN(out.weights, DeviceBuffer::make(packed_bytes(v.size(), multiprocessors)));
  std::vector<uint8_t> counts;
  for (int p = 0; p < panels; ++p) {
    const int first = p * v.k_steps;
    counts.push_back(static_cast<uint8_t>(split.owner(first + v.k_steps - 1) - split.owner(first) + 1));
  }
  HB_ASSIGN(out.slot_counts, DeviceBuffer::make(counts.size()));
  HB_TRY(out.slot_counts.upload(counts.data(), counts.size()));
  v.weights = out.weights.as<uint8_t>();
  v.slot_counts = out.slot_counts.as<uint8_t>();
  return Result<LinearStorage>(std::move(out));
}

// Codes and scales of all parts one below the other, then packed on the device.
Status pack_fp4(LinearStorage& storage, const std::vector<LinearPart>& parts) {
  const Linear& v = storage.view;
  const WeightFormat format = parts[0].format;
  const auto code_bytes = static_cast<size_t>(code_bytes_per_row(format, v.k));
  const auto blocks = static_cast<size_t>(blocks_per_row(format, v.k));
  HB_ASSIGN(DeviceBuffer codes, DeviceBuffer::make(static_cast<size_t>(v.n) * code_bytes));
  HB_ASSIGN(DeviceBuffer scales, DeviceBuffer::make(static_cast<size_t>(v.n) * blocks));
  std::vector<float> factors(static_cast<size_t>(v.rows), 1.0f);
  std::vector<uint8_t> lowest(static_cast<size_t>(v.n), 0);
  size_t row = 0;
  for (const LinearPart& part : parts) {
    const auto n = static_cast<size_t>(part.n);
    HB_TRY(codes.upload(part.codes, n * code_bytes, row * code_bytes));
    HB_TRY(scales.upload(part.block_scales, n * blocks, row * blocks));
    float factor = part.tensor_scale;
    if (format == WeightFormat::kMXFP4) {
      HB_ASSIGN(const uint8_t least, lowest_exponent(part));
      std::fill_n(lowest.begin() + static_cast<std::ptrdiff_t>(row), n, least);
      factor = std::ldexp(1.0f, static_cast<int>(least) - 127 + 15);  // a stored exponent e stands for 2^(e - 15)
    }
    std::fill_n(factors.begin() + static_cast<std::ptrdiff_t>(row), n, factor);
    row += n;
  }
  HB_ASSIGN(DeviceBuffer lowest_rows, DeviceBuffer::make(lowest.size()));
  HB_TRY(lowest_rows.upload(lowest.data(), lowest.size()));
  HB_ASSIGN(storage.scales, DeviceBuffer::make(factors.size() * sizeof(float)));
  HB_TRY(storage.scales.upload(factors.data(), factors.size() * sizeof(float)));
  storage.view.scales = storage.scales.as<float>();
  const int total = v.rows / kPanelRows * v.k_steps;
  const PackArgs args{codes.as<uint8_t>(),
                      scales.as<uint8_t>(),
                      lowest_rows.as<uint8_t>(),
                      storage.weights.as<uint8_t>(),
                      word_columns(),
                      Split::of(total, v.runs),
                      v.n,
                      v.k_steps,
                      static_cast<int>(code_bytes),
                      static_cast<int>(blocks),
                      static_cast<int>(block_size(format))};
  pack_steps<<<dim3(static_cast<unsigned>(total), kPanelTiles), 256>>>(args);
  HB_TRY(check(cudaGetLastError(), "pack_steps"));
  return check(cudaDeviceSynchronize(), "pack_steps");
}

Status randomise_fp4(LinearStorage& storage, WeightFormat format, uint64_t seed) {
  const bool mx = format == WeightFormat::kMXFP4;
  random_steps<<<1024, 256>>>(storage.weights.as<uint8_t>(), storage.weights.size() / 4, seed, mx ? 0u : 0x07070707u);
  HB_TRY(check(cudaGetLastError(), "random_steps"));
  // Uniform codes have root mean square 2.93, scales of 1 to 1.875 one of 1.47.
  const float alpha = 1.0f / (std::sqrt(static_cast<float>(storage.view.k)) * 2.93f * (mx ? 1.0f : 1.47f));
  const std::vector<float> factors(static_cast<size_t>(storage.view.rows), alpha);
  HB_ASSIGN(storage.scales, DeviceBuffer::make(factors.size() * sizeof(float)));
  HB_TRY(storage.scales.upload(factors.data(), factors.size() * sizeof(float)));
  storage.view.scales = storage.scales.as<float>();
  return {};
}

Status run_ring(const Linear& linear, int rows, const void* x, float* partial, Launch how) {
  const LinearArgs args = linear_args(linear, x, partial, how);
  switch (padded_rows(rows)) {
    case 1: return launch_tokens<1>(args, GivenX{}, how);
    case 2: return launch_tokens<2>(args, GivenX{}, how);
    case 4: return launch_tokens<4>(args, GivenX{}, how);
    case 8: return launch_tokens<8>(args, GivenX{}, how);
    default: return launch_tokens<16>(args, GivenX{}, how);
  }
}

Status run_merge_linear(const MergeRows& args, const Linear& linear, int rows, float* partial, Launch how) {
  if (merges(linear, rows, args.out))
    return launch_tokens<1>(linear_args(linear, nullptr, partial, how), MergeX{args}, how);
  MergeRows ahead = args;
  ahead.out.open = needs_row_amax(args.out.mode, args.out.static_alpha) && opens(linear, rows);
  HB_TRY(merge_rows(ahead, rows, how));
  return run_behind(ahead.out, linear, {ahead.out, args.heads * args.head_dim, false, 0.0f}, rows, partial, how);
}

Status run_norm_linear(const NormRows& args, const Linear& linear, int rows, float* partial, Launch how) {
  NormRows ahead = args;
  ahead.out.open = opens(linear, rows);
  HB_TRY(norm_rows(ahead, rows, how));
  return run_behind(ahead.out, linear, {ahead.out, args.k, true, args.eps}, rows, partial, how);
}

Status run_silu_linear(const SiluRows& args, const Linear& linear, int rows, float* partial, Launch how) {
  SiluRows ahead = args;
  ahead.out.open = needs_row_amax(args.out.mode, args.out.static_alpha) && opens(linear, rows);
  HB_TRY(silu_rows(ahead, rows, how));
  return run_behind(ahead.out, linear, {ahead.out, args.k, false, 0.0f}, rows, partial, how);
}

}  // namespace halfbyte::cuda
