// Rounds a weight into the normal form QuantLinear, row by row and in parallel, and back. What loading (rounding at
// load) and the exporter use; the arithmetic is that of formats/ (docs/numerics.md 1 and 2).
//
//   HB_ASSIGN(float amax, weight_amax(source, pool));
//   HB_ASSIGN(QuantLinear q, quantize_weight(source, {.format = WeightFormat::kNVFP4, .amax = amax}, pool));
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "formats/mxfp4.h"
#include "tensor/quant_linear.h"

namespace halfbyte {

// Rows [first, first + rows) of a weight as FP32, out: [rows, k]. Called from several threads at once.
using RowReader = std::function<Status(int64_t first, int64_t rows, std::span<float> out)>;

// The largest magnitude of those rows where it is to be had without their values; not finite where one of them is not.
// Called from several threads at once.
using RowsLargest = std::function<std::optional<float>(int64_t first, int64_t rows)>;

struct WeightSource {
  std::string name;  // for messages and QuantLinear::name
  int64_t n = 0;     // out features
  int64_t k = 0;     // in features
  RowReader read;
  RowsLargest largest = nullptr;  // or null: weight_amax reads
};

// A weight [n, k] in memory, which must outlive the source.
WeightSource weight_source(std::string name, const float* w, int64_t n, int64_t k);

struct QuantizeOptions {
  WeightFormat format = WeightFormat::kNVFP4;
  // NVFP4: the amax that the tensor scale is made from, so that q, k, v and gate, up can share one; 0: the weight's
  // own.
  float amax = 0.0f;
  // The source has been through weight_amax, which refuses what is not finite: not looked at again.
  bool finite = false;
  // MXFP4: how the exponent of a block is chosen.
  Mxfp4Rule mxfp4_rule = Mxfp4Rule::kRound74;
};

// The largest magnitude of the weight. A NaN or an infinity is kInvalidData with its row and column.
Result<float> weight_amax(const WeightSource& source, ThreadPool& pool);

// Round to nearest. Values outside a given amax saturate. A NaN or an infinity is kInvalidData with its row and column.
Result<QuantLinear> quantize_weight(const WeightSource& source, const QuantizeOptions& options, ThreadPool& pool);

// The same, without a whole copy: rows are rounded into memory of a thread's own, and take(weight, begin, end) gets each
// run of rows as soon as it is there. begin is a multiple of `run_rows`, and end is too, or n; of `weight` only rows
// [begin, end) may be read, and only during the call. Called from several threads at once. Returns the tensor scale.
using TakeRows = std::function<void(const QuantLinear& weight, int64_t begin, int64_t end)>;
Result<float> quantize_weight_runs(const WeightSource& source, const QuantizeOptions& options, int64_t run_rows,
                                   ThreadPool& pool, const TakeRows& take);

// Most memory that one thread takes in weight_amax and quantize_weight (run_rows 0), and in quantize_weight_runs.
uint64_t rounding_bytes(WeightFormat format, int64_t k, int64_t run_rows);

// Row `row` of w as FP32, out: [k].
void dequantize_row(const QuantLinear& w, int64_t row, std::span<float> out);

}  // namespace halfbyte
