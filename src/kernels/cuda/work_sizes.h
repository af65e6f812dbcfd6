// How much memory the kernels' operands take, from shapes alone: plain C++, so that what a device will need is known, and
// tested, without one. The limits of a pass stand here, too.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cuda/bf16_layout.h"
#include "kernels/cuda/prompt_layout.h"
#include "kernels/cuda/step_layout.h"

namespace halfbyte::cuda {

inline constexpr int kMaxRows = 16;    // columns x^ of one pass
inline constexpr int kMaxSlots = 8;    // partial sums of an output
inline constexpr int kMaxSplits = 16;  // parts that attention cuts a sequence into

// M is rounded up to a compiled one: 1, 2, 4, 8 or 16.
constexpr int padded_rows(int rows) {
  return rows <= 1 ? 1 : rows <= 2 ? 2 : rows <= 4 ? 4 : rows <= 8 ? 8 : 16;
}

// One weight matrix, or several of one input stacked: n outputs, k inputs.
struct LinearSize {
  bool fp4 = true;  // else BF16
  int64_t n = 0, k = 0;

  int64_t k_steps() const { return (k + kStepK - 1) / kStepK; }  // FP4
  // n padded to the layout: the stride of slots.
  int64_t rows() const { return fp4 ? (n + kPanelRows - 1) / kPanelRows * kPanelRows : (n + 3) / 4 * 4; }
  bool operator==(const LinearSize&) const = default;
};

// Bytes of x^ (or of BF16 rows) for a pass of `rows` (padded) rows. One FP4 row has room behind it for the row unrounded: FP32
// values, and a RowPart for every 128 of them.
inline constexpr int kRowPartBytes = 8;
inline size_t x_bytes(const LinearSize& l, int rows) {
  const int columns = padded_rows(rows);
  if (!l.fp4) return static_cast<size_t>(columns) * static_cast<size_t>(l.k) * 2;
  const int open = columns == 1 ? kStepK * 4 + kRowPartBytes : 0;
  return static_cast<size_t>(l.k_steps()) * static_cast<size_t>(x_chunk_bytes(columns) + open);
}

// Floats of a linear's slots.
inline size_t slot_floats(const LinearSize& l, int rows) {
  return static_cast<size_t>(l.fp4 ? kMaxSlots : 1) * static_cast<size_t>(padded_rows(rows)) *
         static_cast<size_t>(l.rows());
}

// The same for the rows of a prompt's pass: x^, and the result, which has one slot.
inline size_t prompt_x_bytes(const LinearSize& l, int rows) {
  const int64_t runs = l.fp4 ? l.k_steps() * (kStepK / kPromptK) : (l.k + kPromptK - 1) / kPromptK;
  return static_cast<size_t>(runs) * static_cast<size_t>(padded_prompt_rows(rows)) * kPromptRowBytes;
}
inline size_t prompt_y_floats(const LinearSize& l, int rows) {
  return static_cast<size_t>(padded_prompt_rows(rows)) * static_cast<size_t>(l.rows());
}

struct HeadSize {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
};
// Parts of attention for a pass of `rows` rows: sums, and two numbers each.
inline size_t part_floats(const HeadSize& h, int rows) {
  return static_cast<size_t>(rows * h.heads * kMaxSplits * h.head_dim);
}
inline size_t stat_floats(const HeadSize& h, int rows) {
  return static_cast<size_t>(rows * h.heads * kMaxSplits * 2);
}
// Queries of a prompt's pass: rows of all query heads of a KV head, in whole items of attention.
inline constexpr int kPromptItemRows = 128;
inline size_t prompt_query_floats(const HeadSize& h, int rows) {
  const int64_t items = (rows * (h.heads / h.kv_heads) + kPromptItemRows - 1) / kPromptItemRows;
  return static_cast<size_t>(items * kPromptItemRows) * static_cast<size_t>(h.kv_heads * h.head_dim);
}

// Whether a prompt's pass runs SiLU in the product of gate and up, which it never writes then (linear_prompt.cu): `k` outputs of
// gate, rounded to BF16 values for a linear whose weights are of the same family.
constexpr bool fuses_prompt_silu(const LinearSize& gate_up, int64_t k, bool fp4, bool bf16_values, bool wgmma) {
  return wgmma && bf16_values && fp4 == gate_up.fp4 && gate_up.n == 2 * k && k % kStepK == 0;
}

// Thread blocks of a linear. BF16: each has whole tiles. FP4: an even share of all steps, which may end within a panel.
inline int linear_runs(const LinearSize& l, int multiprocessors) {
  if (!l.fp4) return static_cast<int>(std::min<int64_t>((l.n + kBf16TileRows - 1) / kBf16TileRows, multiprocessors));
  const int panels = static_cast<int>(l.rows() / kPanelRows), steps = static_cast<int>(l.k_steps());
  const int total = panels * steps;
  int runs = std::min({multiprocessors, total, panels * (kMaxSlots - 2)});
  // Runs of one k step beside runs of two may leave a panel more: fewer runs then.
  while (runs > 1 && Split::of(total, runs).slots(steps) > kMaxSlots) --runs;
  return runs;
}

// Bytes of packed weights: each thread block's share is padded to the longest.
inline size_t packed_bytes(const LinearSize& l, int multiprocessors) {
  const int64_t runs = linear_runs(l, multiprocessors);
  const auto padded = [runs](int64_t units) { return static_cast<size_t>((units + runs - 1) / runs * runs); };
  if (l.fp4) return padded(l.rows() / kPanelRows * l.k_steps()) * kPanelStepBytes;
  const int64_t tile_k = (bf16_parts(l.k) - 1) * kBf16PartK + bf16_last_k(l.k);
  return padded((l.n + kBf16TileRows - 1) / kBf16TileRows) * kBf16TileRows * static_cast<size_t>(tile_k) * 2;
}
// With their scales, biases and counts of slots.
inline size_t linear_bytes(const LinearSize& l, int multiprocessors) {
  return packed_bytes(l, multiprocessors) + static_cast<size_t>(l.rows()) * 2 * sizeof(float) +
         (l.fp4 ? static_cast<size_t>(l.rows() / kPanelRows) : 0);
}
// And while they are made, beside that: the weights as they come.
inline size_t linear_staging_bytes(const LinearSize& l) {
  const auto values = static_cast<size_t>(l.n) * static_cast<size_t>((l.k + kBlock - 1) / kBlock * kBlock);
  return l.fp4 ? values / 2 + values / kBlock + static_cast<size_t>(l.n) : values * 2;
}

}  // namespace halfbyte::cuda
