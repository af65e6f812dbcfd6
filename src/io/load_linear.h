// One linear layer out of a source, in the normal form. What the tensors are decides; the quantisation lists only warn,
// and tell apart what looks alike (NVFP4 with one scale for 32 elements, input scales that mean nothing).
//
//   tensors beside MODULE.weight                                     read as
//   weight_scale F8_E4M3, weight_scale_2 (multiplier), input_scale   NVFP4 as ModelOpt writes it
//   weight_scale F8_E4M3, weight_global_scale (divisor),
//     input_global_scale (divisor), weight_packed for weight         NVFP4 as compressed-tensors writes it
//   weight_scale U8                                                  MXFP4 of ModelOpt, Quark, compressed-tensors
//   weight F8_E4M3, weight_scale or weight_scale_inv                 FP8: one scale a tensor, row or block; MXFP8: U8
//   pre_quant_scale                                                  AWQ: the input is multiplied by it first
//   GGUF's NVFP4 and MXFP4 blocks                                    the same formats, bit for bit
//
// A tensor with another suffix is an error that names it. Half a set (a U8 weight without scales, scales without a
// packed weight) is an error.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "io/quant_config.h"
#include "io/tensor_source.h"
#include "tensor/quant_linear.h"
#include "tensor/quantize_tensor.h"

namespace halfbyte {

// What load_quant_linear will give, without reading any weight.
struct LinearFacts {
  ModuleQuant quant = ModuleQuant::kNone;
  int64_t n = 0, k = 0;
  const TensorInfo* weight = nullptr;         // stored weight; for kNone of any readable type
  const TensorInfo* bias = nullptr;           // or null
  const TensorInfo* block_scales = nullptr;   // weight_scale, also FP8's; null for kNone and GGUF
  const TensorInfo* tensor_scale = nullptr;   // weight_scale_2 or weight_global_scale
  const TensorInfo* input_scale = nullptr;    // input_scale or input_global_scale; null: weight-only
  const TensorInfo* pre_scale = nullptr;      // pre_quant_scale
  bool divisors = false;                      // tensor and input scale divide (compressed-tensors)
  int64_t scale_rows = 1, scale_columns = 1;  // FP8: the block that one scale covers
  std::vector<const TensorInfo*> stored;      // all of the module's tensors, also those that mean nothing here
  std::string contradiction;                  // "config.json says FP8, the tensors are NVFP4; ..."; empty: none

  // The format that needs no rounding: of 4-bit weights.
  std::optional<WeightFormat> packed_format() const;
};

// A line for people: "NVFP4, E4M3 a 16-block, weight_global_scale divides, input scale".
std::string describe(const LinearFacts& facts);

// Whether the source has a weight for the module, under any of the names above.
bool has_linear(const TensorSource& source, std::string_view module);

// kNotFound when MODULE.weight is missing.
Result<LinearFacts> linear_facts(const TensorSource& source, const QuantConfig& quant, std::string_view module,
                                 std::vector<std::string>* warnings = nullptr);

// 4 bits: codes and scales, borrowed from the mapping where they lie as the normal form has them and none had to be
// mended. Plain BF16 stays kBF16 (borrowed when aligned); every other type becomes kF32, exactly (FP8: code * scale in
// FP32).
// `pool`, where given, shares the work of putting codes in order.
// Every scale is checked: NaN scales over a zero block become 0, over codes they are an error with row and block;
// negative scales, tensor scales that are not finite, positive and invertible are errors.
Result<QuantLinear> load_quant_linear(const TensorSource& source, const LinearFacts& facts, std::string_view module,
                                      ThreadPool* pool = nullptr);
Result<QuantLinear> load_quant_linear(const TensorSource& source, const QuantConfig& quant, std::string_view module,
                                      std::vector<std::string>* warnings = nullptr);

// The same weight as rows of FP32, to be rounded to another format, and what lies beside it: bias, input scale,
// pre-scale. The source must outlive it.
struct LinearRows {
  QuantLinear beside;  // codes and scales only for 4-bit weights
  WeightSource rows;
};
Result<LinearRows> open_linear_rows(const TensorSource& source, const LinearFacts& facts, std::string_view module,
                                    ThreadPool* pool = nullptr);

// One number, stored as [] or [1], that is finite and positive and whose reciprocal is finite.
Result<float> load_scale(const TensorSource& source, const TensorInfo& tensor);

}  // namespace halfbyte
