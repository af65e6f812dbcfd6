// The operations a model is made of, on plain views. Every operation has a scalar reference and faster forms; the
// registry chooses one per machine, says which, and can be forced. The order of every sum is in docs/numerics.md.
#pragma once

#include <cstdint>
#include <string_view>

#include "tensor/quant_linear.h"

namespace halfbyte {

// Instruction sets with kernels of their own, in rising order of preference. Each contains those before it, but for
// AVX-VNNI, which is a branch of its own: AVX2 and the VEX-encoded vpdpbusd.
enum class Isa : uint8_t { kRef, kAvx2, kAvxVnni, kAvx512, kAmx };
const char* isa_name(Isa isa);  // "ref", "avx2", "avxvnni", "avx512", "amx"

// Why a row runs. A role and never a row count: a generated token is a decode row whatever runs beside it, a prompt
// token is a prompt row whatever the chunk, so results do not depend on company.
enum class RowRole : uint8_t { kDecode, kPrompt };

// What a linear's input is rounded to (docs/numerics.md 2 and 3). kA4 and kA8 follow the weight's format: NVFP4 and FP8
// rows beside NVFP4 weights, MXFP4 and MXFP8 beside MXFP4 weights.
enum class ActivationMode : uint8_t { kF32, kA16, kA8, kA4 };

// Activations and packed weights begin at multiples of this many bytes, and as many bytes behind the end of packed weights
// are readable; Buffer::allocate gives both.
inline constexpr size_t kKernelAlign = 64;

// A part of y = x W^T (+ bias): y[m, n] for n in [n_begin, n_end), m in [0, rows).
struct LinearCall {
  const std::byte* packed = nullptr;  // the whole weight [n, k] in the kernel's layout
  float tensor_scale = 1.0f;          // alpha_w
  const float* bias = nullptr;        // [n] or null
  int64_t n = 0, k = 0;
  const std::byte* activations = nullptr;  // [rows, activation_bytes(k)]
  int64_t rows = 0;                        // 1 to max_rows
  int64_t n_begin = 0, n_end = 0;          // n_begin is a multiple of row_tile; n_end is too, or n
  float* y = nullptr;                      // [rows, ldy]
  int64_t ldy = 0;
};

// One way to run y = x W^T (+ bias) for one weight format and activation mode. Functions are thread-safe and keep no
// state but scratch memory of the calling thread.
//
//   pack      once, at load: W -> the kernel's own layout, by ranges of rows
//   quantize  x [rows, k] -> rows of activation_bytes(k) bytes
//   run       y = activations * packed, by ranges of output rows
struct LinearKernel {
  // linear_<weights>_<activations>_<isa>, e.g. "linear_nvfp4_a16i16_avx2". Two kernels of one mode differ in the form
  // of the activations or the order of sums: "a16" multiplies BF16 exactly, "a16i16" holds it as 16-bit integers a
  // block, "a16t" adds in the tile order (docs/numerics.md 3.5).
  std::string_view name;
  Isa isa;
  WeightFormat weights;
  ActivationMode activations;
  int64_t row_tile;  // output rows a unit of work: n ranges begin at multiples of it
  int64_t max_rows;  // input rows (tokens) that share one pass over the weights

  // The weight in this kernel's layout: bytes of all of it, and packing of rows [n_begin, n_end) into `packed` (the
  // start of the whole). n_begin is a multiple of row_tile; n_end is too, or n.
  size_t (*packed_bytes)(int64_t n, int64_t k);
  void (*pack)(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed);

  // Activations: bytes of one row in this kernel's form (a multiple of kKernelAlign), and the conversion of `rows` rows
  // x [rows, k]. alpha > 0: the static tensor scale; alpha == 0: per token. Modes without a tensor scale ignore it.
  size_t (*activation_bytes)(int64_t k);
  void (*quantize)(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);

  void (*run)(const LinearCall& call);

  // Only for prompt rows: another kernel runs the decode rows over the same packed weights.
  bool prompt_only = false;
};

// Kernels of the set `ref` keep a weight as QuantLinear has it: the codes at the start, the block scales from here on.
// What a device that packs for itself reads.
constexpr size_t normal_form_scales_offset(WeightFormat format, int64_t n, int64_t k) {
  return (static_cast<size_t>(n * code_bytes_per_row(format, k)) + kKernelAlign - 1) / kKernelAlign * kKernelAlign;
}

// Rows x [rows, k] -> y [rows, k]: x / rms(x) * weight.
using RmsNormFn = void (*)(const float* x, const float* weight, float eps, int64_t rows, int64_t k, float* y);

// Rotates pairs (i, i + head_dim/2) of each head in place. x: [heads, head_dim]; cos, sin: [head_dim/2] of this
// position.
using RopeFn = void (*)(float* x, const float* cos, const float* sin, int64_t heads, int64_t head_dim);

// out = silu(gate) * up, elementwise over n.
using SiluMulFn = void (*)(const float* gate, const float* up, int64_t n, float* out);

// How a cache holds keys and values (docs/numerics.md 5).
enum class KvFormat : uint8_t { kF32, kBF16, kFP8, kNVFP4, kE1M2 };

// A part of a page: the keys, or the values, of one head and layer.
//
//   keys    transposed, so that the lanes of a vector are positions: [head_dim / unit][page_tokens][unit] elements; a unit
//           is 2 channels, in FP32 one. 4-bit: the low nibble is the even channel; then scales [blocks][page_tokens]
//   values  [page_tokens][head_dim] elements, 4-bit the even channel in the low nibble; then scales [page_tokens][blocks]
struct KvLayout {
  KvFormat format = KvFormat::kBF16;
  int64_t page_tokens = 0;  // a power of two
  int64_t head_dim = 0;     // even
};
size_t kv_part_bytes(const KvLayout& layout);
const char* kv_format_name(KvFormat format);  // "f32", "bf16", "fp8", "nvfp4", "e1m2"

// Rounds one position's key and value [head_dim] of one head into the parts it belongs to, at `slot` (position mod
// page_tokens). Other slots are not touched, so different positions may be stored at the same time. Scales: as KvView.
using KvStoreFn = void (*)(const KvLayout& layout, int64_t slot, const float* key, float key_scale, const float* value,
                           float value_scale, std::byte* key_part, std::byte* value_part);

// One sequence's cache in one layer. A page holds the keys' parts of all heads, then the values' parts.
struct KvView {
  const std::byte* const* pages = nullptr;  // in order of positions
  KvLayout layout;
  int64_t kv_heads = 0;
  float key_scale = 1.0f, value_scale = 1.0f;  // of FP8 and 4-bit formats
};

// Causal attention for the query heads of one KV head. Row i is the query at position + i, sees positions 0 .. position + i,
// and lies, [group, head_dim], at q + i * stride; its result at out + i * stride. group = heads / kv_heads.
struct AttentionRows {
  const float* q = nullptr;
  float* out = nullptr;
  int64_t stride = 0;
  int64_t position = 0;
  int64_t count = 0;  // 1 to AttentionKernels::max_rows(group)
  int64_t kv_head = 0;
  int64_t group = 0;
  float scale = 0.0f;  // of the scores: 1 / sqrt(head_dim)
};

// Positions are cut at absolute multiples of this many, and a row's cuts are merged in ascending order: so the cuts of a
// row may be computed apart and nothing depends on who computes which.
inline constexpr int64_t kAttentionCut = 256;

// What one cut of one row (count == 1) gives: o [group, head_dim], m [group], l [group].
int64_t attention_partial_floats(int64_t group, int64_t head_dim);
// Scratch of one call; no alignment asked.
int64_t attention_scratch_floats(int64_t group, int64_t head_dim);

// Query rows (tokens times heads of the group) that share one conversion of keys and values to FP32.
inline constexpr int64_t kAttentionQueryRows = 48;

struct AttentionKernels {
  // All cuts of every row.
  void (*rows)(const KvView& kv, const AttentionRows& rows, float* scratch);
  // One cut [cut * kAttentionCut, ...) of a single row, into a partial. rows.out is not used.
  void (*cut)(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial);
  // The result [group, head_dim] of a row from its partials in ascending order, one behind the other. They are used up.
  void (*merge)(float* partials, int64_t cuts, int64_t group, int64_t head_dim, float* out);
  int64_t query_rows = kAttentionQueryRows;

  // Rows (tokens) that one call takes at most; more share each read of the cache.
  constexpr int64_t max_rows(int64_t group) const { return group < query_rows ? query_rows / group : 1; }
};

struct VectorKernels {
  Isa isa;
  RmsNormFn rmsnorm;
  RopeFn rope;
  SiluMulFn silu_mul;
  AttentionKernels attention;  // of decode rows
  AttentionKernels
      prompt_attention;  // of prompt rows: the same, or a form with an order of its own (docs/numerics.md 5.1)
  KvStoreFn store_kv;
};

}  // namespace halfbyte
