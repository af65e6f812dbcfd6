// The CUDA operations of a decoder, as host functions that put one kernel each on a stream. They know shapes and
// layouts, never models. Which kernel an operation takes on a device: kernel_set.h.
//
// A linear writes slots: partial sums [slot][M][rows] FP32, 1 to kMaxSlots an output. Whoever reads a linear's result
// adds the slots in ascending order as it reads (SlotView), so no kernel stands between a linear and its reader.
// With `programmatic` a kernel may begin before the one ahead of it has ended; it then waits before it touches anything
// but weights, so every operation is safe in any order on one stream.
#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/temperature_sums.h"
#include "kernels/cuda/kernel_set.h"
#include "kernels/cuda/linear_table.h"
#include "kernels/cuda/prompt_layout.h"
#include "kernels/cuda/work_sizes.h"
#include "tensor/quant_linear.h"

namespace halfbyte::cuda {

// kMaxRows, kMaxSlots, kMaxSplits and padded_rows: work_sizes.h.
inline constexpr int kMaxWidth = 32768;  // K of a row operation
inline constexpr int kMaxHeadDim = 128;  // 64 and 128 are compiled
inline constexpr int kMaxGroup = 8;      // query heads a KV head

// --- devices ---

struct DeviceInfo {
  int index = 0;
  std::string name;
  int major = 0, minor = 0;
  int multiprocessors = 0;
  size_t memory_bytes = 0, free_bytes = 0, l2_bytes = 0;
  int driver = 0, runtime = 0;  // e.g. 13000
  size_t shared_bytes = 0;      // that a thread block may ask for
  KernelSet kernels;            // that would run there
  std::string unusable;         // why none can; empty: they can
};
// Whether a driver is there, of whatever age.
bool driver_is_there();
// Every device that the driver shows. kUnsupported when there is no driver or it is too old, with the driver's words.
Result<std::vector<DeviceInfo>> devices();
// The device, made the one in use, with its kernels made the active ones; or kUnsupported that says what was found.
Result<DeviceInfo> usable_device(int index);

// For the devices that usable_device gives from now on: forcing changes times, and prompts' last bits. Not while another
// thread works on a device or asks for one.
void force_kernels(ForcedKernels forced);
// Of the device in use.
const KernelSet& active_kernels();

// kInternal with the call's and CUDA's words, kResourceExhausted for memory; ok for cudaSuccess.
Status check(cudaError_t code, const char* what);

// Device memory, zeroed when asked for. Movable; freed with its owner.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> make(size_t bytes, bool zero = false);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t size() const { return size_; }
  Status upload(const void* from, size_t bytes, size_t offset = 0);
  Status download(void* to, size_t bytes, size_t offset = 0) const;

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

struct Launch {
  cudaStream_t stream = nullptr;
  bool programmatic = false;
};

// --- linears ---

// How a linear's input rows are rounded (docs/numerics.md 2, 3 and 8). The first group writes x^ for FP4 weights (BF16,
// the layout of step_layout.h), kBf16Rows plain BF16 rows for BF16 weights.
enum class RowMode : uint8_t {
  kA16,      // BF16 values
  kA8,       // E4M3 with a scale a row
  kA4,       // NVFP4
  kMxA8,     // MXFP8
  kMxA4,     // MXFP4
  kBf16Rows  // [rows][k] BF16
};

// Device pointers of one weight matrix, or of several of one input stacked row by row.
struct Linear {
  bool fp4 = true;  // else BF16
  const uint8_t* weights = nullptr;
  int n = 0, k = 0;                      // as the model has them
  int rows = 0;                          // n padded to the layout: the stride of slots
  int k_steps = 0;                       // FP4
  int runs = 0;                          // thread blocks
  const uint8_t* slot_counts = nullptr;  // [rows / 128]: slots of a panel's outputs
  const float* scales = nullptr;         // [rows]: alpha_w of each output
  const float* bias = nullptr;           // [rows] or null
  size_t bytes = 0;                      // that a pass must read
  int multiprocessors = 0;               // of the device
  // FP4: the kernel for 1, 2, 4, 8 and 16 rows. All give the same bits. A ring where none can run is taken for stages.
  std::array<LinearKernel, 5> kernels = {};

  LinearSize size() const { return {fp4, n, k}; }
};

// A linear's memory; `view` points into it.
struct LinearStorage {
  Linear view;
  DeviceBuffer weights, slot_counts, scales, bias;
};

// One of the matrices that are stacked: [n, k] in the normal form of QuantLinear, host pointers.
struct LinearPart {
  WeightFormat format = WeightFormat::kNVFP4;
  int64_t n = 0, k = 0;
  const void* codes = nullptr;
  const void* block_scales = nullptr;
  float tensor_scale = 1.0f;
  const float* bias = nullptr;  // [n] or null
};
// Uploads and packs. All parts have one format and K. kUnsupported: MXFP4 scales of one part that span more than 2^30.
Result<LinearStorage> make_linear(const std::vector<LinearPart>& parts, int multiprocessors);
// Random weights of a shape, made on the device: every code, scales around 1 / sqrt(k).
Result<LinearStorage> make_random_linear(WeightFormat format, int64_t n, int64_t k, int multiprocessors, uint64_t seed);

// Which kernel the linears take that are made from now on, where the table has their shape and nothing is forced. Thread-safe,
// as is making them.
void use_linear_table(LinearTable table);

// Bytes of x^ (or of BF16 rows) for a pass of `rows` (padded) rows.
inline size_t x_bytes(const Linear& linear, int rows) {
  return x_bytes(linear.size(), rows);
}
// Floats of a linear's slots.
inline size_t slot_floats(const Linear& linear, int rows) {
  return slot_floats(linear.size(), rows);
}

// partial = W x^ for `rows` rows, 1 to 16; x: x_bytes, partial: slot_floats.
Status run_linear(const Linear& linear, int rows, const void* x, float* partial, Launch launch);

// A linear's result as its reader sees it: y[m][r] = (sum of slots) * (scales[r] * x_scale[m]) + bias[r].
struct SlotView {
  const float* partial = nullptr;
  const uint8_t* slot_counts = nullptr;  // null: one slot
  const float* scales = nullptr;         // null: 1
  const float* bias = nullptr;
  const float* x_scale = nullptr;  // [M]; null: 1
  int rows = 0;                    // stride of a column
  int columns = 0;                 // padded M
};
SlotView slots_of(const Linear& linear, int rows, const float* partial, const float* x_scale);

// The same for the rows of a prompt, any number of them: y [padded_prompt_rows][rows] of the linear, one slot, in an order
// of sums of its own (linear_prompt.cu). x as a row operation writes it with RowOutput::prompt_rows. tile: 64, 128 or 256
// rows a thread block, 0: chosen; the numbers are the same.
Status run_prompt_linear(const Linear& linear, int rows, const void* x, float* y, Launch launch, int tile = 0);
// out = round(silu(gate) * up) of a linear whose outputs are gate, then up: run_prompt_linear and silu_rows in one kernel,
// with the same numbers. For `k` outputs of gate rounded in `mode`, where fuses_prompt_silu says so. x_scale: null for ones.
inline bool fuses_prompt_silu(const Linear& gate_up, int k, RowMode mode) {
  const bool fp4 = mode != RowMode::kBf16Rows;
  return fuses_prompt_silu(gate_up.size(), k, fp4, !fp4 || mode == RowMode::kA16, active_kernels().wgmma);
}
struct RowOutput;
Status run_prompt_silu(const Linear& gate_up, int rows, const void* x, const float* x_scale, const RowOutput& out,
                       Launch launch, int tile = 0);
// RowOutput::prompt_rows of the rows that run_prompt_linear reads: padded_prompt_rows, or 0 for plain rows.
int prompt_layout_rows(const Linear& linear, int rows);
inline size_t prompt_x_bytes(const Linear& linear, int rows) {
  return prompt_x_bytes(linear.size(), rows);
}
inline size_t prompt_y_floats(const Linear& linear, int rows) {
  return prompt_y_floats(linear.size(), rows);
}
SlotView prompt_slots_of(const Linear& linear, int rows, const float* y, const float* x_scale);

// --- row operations: results are rounded for the next linear ---

// Where a rounded row goes.
struct RowOutput {
  RowMode mode = RowMode::kA16;
  float static_alpha = 0.0f;  // kA4, kA8: the tensor scale; 0: per token
  void* x = nullptr;          // x_bytes of the next linear, zero where nothing is written
  float* x_scale = nullptr;   // [M]
  int prompt_rows = 0;        // padded_prompt_rows of a prompt's pass, whose x^ lies as prompt_layout.h says; 0: decode
  bool open = false;          // one row left unrounded in x, for a linear that rounds its own share (run_norm_linear)
};

// residual[m] += y[m] (or = the embedding of token[m] when embedding is given); out = round(rmsnorm(residual) * weight).
struct NormRows {
  SlotView y;                       // unused when embedding is given
  const void* embedding = nullptr;  // [vocab][k] BF16 or FP32
  bool embedding_bf16 = true;
  const int32_t* tokens = nullptr;     // [M], with embedding
  const int32_t* positions = nullptr;  // [M]: rows with a negative one are left out
  const int32_t* pick = nullptr;       // [M]: row of the residual that row m reads; null: m
  float* residual = nullptr;           // [16][k]
  bool keep = true;                    // write the residual back
  const float* weight = nullptr;       // [k]
  float eps = 1e-6f;
  int k = 0;
  RowOutput out;
};
Status norm_rows(const NormRows& args, int rows, Launch launch);
// The same for the rows of a prompt, all of them there: residual [rows][k], no pick, kept. The numbers are the same.
Status norm_prompt(const NormRows& args, int rows, Launch launch);

// out = round(silu(gate) * up); gate is rows [0, k) of y, up rows [k, 2k).
struct SiluRows {
  SlotView y;
  const int32_t* positions = nullptr;
  int k = 0;
  RowOutput out;
};
Status silu_rows(const SiluRows& args, int rows, Launch launch);

// A row operation and the linear that reads its rows. One row the linear may round for itself, so that the row operation's
// thread blocks need not meet; the numbers are the same.
Status run_norm_linear(const NormRows& args, const Linear& linear, int rows, float* partial, Launch launch);
Status run_silu_linear(const SiluRows& args, const Linear& linear, int rows, float* partial, Launch launch);

// out = round(y): rows [0, k) of each column.
struct RoundRows {
  SlotView y;
  int k = 0;
  RowOutput out;
  const int32_t* positions = nullptr;  // [M]: rows with a negative one are left out
};
Status round_rows(const RoundRows& args, int rows, Launch launch);

// --- attention ---

// A paged cache: page p of layer l holds K then V, each [kv_heads][page_tokens][head_dim] BF16 or E4M3 of value / scale, at
// base + p * page_stride + layer_offset.
struct KvPages {
  uint8_t* base = nullptr;
  size_t page_stride = 0;
  size_t layer_offset = 0;
  int page_tokens = 0;              // a power of two, at least 16
  const int32_t* tables = nullptr;  // [M][table_stride]: a row's pages
  int table_stride = 0;
  bool fp8 = false;
  float key_scale = 1.0f, value_scale = 1.0f;  // 1 for BF16
};

// q, k, v of M rows -> norm and rotation -> append to the cache -> attention over 0 .. position, in parts.
struct AttentionRows {
  SlotView qkv;                        // rows [0, q), then k, then v
  const int32_t* positions = nullptr;  // [M]
  const float* q_norm = nullptr;       // [head_dim] or null
  const float* k_norm = nullptr;
  float eps = 1e-6f;
  const float* cos = nullptr;  // [context][head_dim / 2]
  const float* sin = nullptr;
  KvPages kv;
  int heads = 0, kv_heads = 0, head_dim = 0;
  float scale = 1.0f;      // 1 / sqrt(head_dim)
  float* parts = nullptr;  // [M][heads][kMaxSplits][head_dim] sums, not yet divided
  float* stats = nullptr;  // [M][heads][kMaxSplits][2]: maximum (times log2 e), sum of exponentials
};
// kOwnRow: each row's sequence has no other row in the pass (decode); keys and values of the row are appended on the
// way. kAppended: append_rows has run before (prompts).
enum class KvState { kOwnRow, kAppended };
Status append_rows(const AttentionRows& args, int rows, Launch launch);
Status attention_rows(const AttentionRows& args, KvState state, int rows, Launch launch);
// attention_rows and merge_rows in one, with the same numbers, where attention_merges says so: for several rows on a device
// with clusters. A rounding that must know the whole row is a kernel behind it; args.parts then holds the rows meanwhile.
bool attention_merges(int rows);
Status attention_merged(const AttentionRows& args, KvState state, const RowOutput& out, int rows, Launch launch);

// Prompts: `rows` consecutive rows of one sequence, positions ascending by 1, all with table 0 of kv.tables.
// Queries of the rows into args.parts, of prompt_query_floats; with `append`, keys and values into the cache.
Status prompt_heads(const AttentionRows& args, int rows, bool append, Launch launch);
// Then attention over what stands in the cache, their own keys and values appended: out [rows][heads][head_dim] FP32, or,
// with x, where fuses_prompt_rounding says so, rounded for the next linear, from row x_row of its pass on.
bool fuses_prompt_rounding(const AttentionRows& args, RowMode mode);
Status attention_prompt(const AttentionRows& args, int rows, float* out, const RowOutput* x, int x_row, Launch launch);

// out = round(attention's result), merged over its parts in ascending order. head_dim: a multiple of 64, or one head.
struct MergeRows {
  const float* parts = nullptr;
  const float* stats = nullptr;
  const int32_t* positions = nullptr;
  int heads = 0, head_dim = 0;
  RowOutput out;
};
Status merge_rows(const MergeRows& args, int rows, Launch launch);

// merge_rows and the linear that reads it, as run_norm_linear. Where it is faster the linear merges for itself, in one
// kernel.
Status run_merge_linear(const MergeRows& args, const Linear& linear, int rows, float* partial, Launch launch);

// Positions of a part for a sequence of `length` positions: parts begin at multiples of it, and there are as many as can be,
// so that a long sequence's fill the device.
#if defined(__CUDACC__)
__host__ __device__
#endif
    constexpr int
    split_span(int length) {
  constexpr int kGroup = 16, kLeast = 64;
  const int span = (length + kGroup * kMaxSplits - 1) / (kGroup * kMaxSplits) * kGroup;
  return span < kLeast ? kLeast : span;
}

// --- tokens ---

// The device's clock in ns at the beginning and end of steps; beyond `capacity` nothing is noted.
struct StepStamps {
  int32_t count = 0, capacity = 0;
  uint64_t* begins = nullptr;  // [capacity]
  uint64_t* ends = nullptr;    // [capacity]
};
// Notes the beginning of a step.
Status stamp_begin(StepStamps* stamps, Launch launch);

inline constexpr int kMaxStops = 8;  // stop tokens that a row's rule holds

// How a row draws, on the device: temperature <= kGreedyTemperature (base/greedy.h) is greedy, min_p 0, top_k 0 and top_p 1
// are off. Everything else is the host's; so are top_k and top_p where draw_rows has no clusters (KernelSet).
struct DrawRule {
  float temperature = 0.0f;
  float min_p = 0.0f;
  uint64_t seed = 0;
  uint32_t choice = 0;
  bool wants_entropy = false;
  bool by_entropy = false;  // `policy` chooses the temperature, from the entropy
  TemperatureStep policy;
  int32_t top_k = 0;
  float top_p = 1.0f;
  // What lets rows go on by themselves (DrawRows::advance). state: stands in place of `policy`, and moves on by a token.
  TemperatureSums* state = nullptr;
  double* ring = nullptr;            // [state->window]
  const uint8_t* classes = nullptr;  // [class_count]: StepClasses
  int32_t class_count = 0;
  int32_t limit = INT32_MAX;  // a row rests when it has this many tokens, or has drawn one of `stops`
  int32_t stop_count = 0;
  int32_t stops[kMaxStops] = {};
};
struct Drawn {
  int32_t token = -1;  // -1: a logit is NaN or infinite
  float entropy = 0.0f;
  float temperature = 0.0f;  // the one used
};
struct DrawRows {
  SlotView logits;
  int vocab = 0;
  const DrawRule* rules = nullptr;  // [M]
  const int32_t* rows = nullptr;    // [M]: the row whose position the draw uses; negative: none; null: m
  int32_t* tokens = nullptr;        // [M] of the rows
  int32_t* positions = nullptr;     // [M] of the rows
  // tokens[row] = drawn, positions[row] += 1, policies move on: the next step can follow on the device. A row that rests
  // (its rule says when, or a logit was not finite) gets position -1, and every operation leaves it out.
  bool advance = false;
  Drawn* drawn = nullptr;  // [drawn_places][drawn_stride]: row m at place `position mod drawn_places`; may be pinned
  int drawn_places = 1;    // a power of two
  int drawn_stride = 0;    // unused with one place
  float* plain = nullptr;  // [M][vocab]: the logits with slots added, or null
  StepStamps* stamps = nullptr;  // where row 0 notes the end of the step, or null
};
Status draw_rows(const DrawRows& args, int rows, Launch launch);

// --- measuring ---

// Reads `bytes` once and keeps nothing: the floor of every memory-bound kernel.
Status read_all(const void* data, size_t bytes, int multiprocessors, Launch launch);
// The best of a few reads of `bytes` of fresh device memory, GB/s.
Result<double> measure_read_gbps(size_t bytes, int multiprocessors);
struct Clocks {
  int sm_mhz = 0, memory_mhz = 0;  // 0: the driver's library does not say
};
Clocks current_clocks(int device);
// FP8 numbers up to 1.875.
Status fill_random_fp8(void* data, size_t count, uint64_t seed, Launch launch);
Status fill_random_bf16(void* data, size_t count, float width, uint64_t seed, Launch launch);

}  // namespace halfbyte::cuda
