// One linear layer out of a source, in the normal form. What the tensors are decides; the quantisation lists only warn.
//
// Recognised beside MODULE.weight: bias, weight_scale, weight_scale_2, input_scale, k_scale, v_scale. A tensor with
// another suffix is an error that names it. Half a set (a U8 weight without scales, scales without a packed weight) is
// an error.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/quant_config.h"
#include "io/tensor_source.h"
#include "tensor/quant_linear.h"

namespace halfbyte {

// What load_quant_linear will give, without reading any weight.
struct LinearFacts {
  ModuleQuant quant = ModuleQuant::kNone;
  int64_t n = 0, k = 0;
  const TensorInfo* weight = nullptr;        // stored weight; for kNone of any readable type
  const TensorInfo* bias = nullptr;          // or null
  const TensorInfo* block_scales = nullptr;  // weight_scale; null for kNone
  const TensorInfo* tensor_scale = nullptr;  // weight_scale_2; null for kNone
  const TensorInfo* input_scale = nullptr;   // null: weight-only
};

// kNotFound when MODULE.weight is missing.
Result<LinearFacts> linear_facts(const TensorSource& source, const QuantConfig& quant, std::string_view module,
                                 std::vector<std::string>* warnings = nullptr);

// NVFP4: kNVFP4 with codes (and scales, unless one had to be mended) borrowed from the mapping.
// Plain: BF16 stays kBF16 (borrowed when aligned); every other type becomes kF32, exactly.
// Every scale is checked: NaN bytes over a zero block become 0, over codes they are an error with row and block;
// negative scales, tensor scales that are not finite, positive and invertible are errors.
Result<QuantLinear> load_quant_linear(const TensorSource& source, const QuantConfig& quant, std::string_view module,
                                      std::vector<std::string>* warnings = nullptr);

// One number, stored as [] or [1], that is finite and positive and whose reciprocal is finite.
Result<float> load_scale(const TensorSource& source, const TensorInfo& tensor);

}  // namespace halfbyte
