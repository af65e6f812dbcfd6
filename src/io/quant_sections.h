// The readers of each tool's description. Private to src/io.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "io/quant_config.h"

namespace halfbyte {

// A section with a quant_algo, or with groups of ModelOpt's shape. `outer` holds the producer and perhaps the section
// itself under "quantization".
Status read_modelopt_section(const JsonValue& outer, const JsonValue& section, QuantConfig& config);
Status read_compressed_tensors_section(const JsonValue& section, QuantConfig& config);
Status read_quark_section(const JsonValue& section, QuantConfig& config);
// quant_method mxfp4, fp8.
Status read_plain_section(const JsonValue& section, std::string_view method, QuantConfig& config);

// kUnsupported: "<where>: <text>, which is not supported; supported: ...".
Status unsupported_quant(const JsonValue& where, const std::string& text);
// The names and patterns of a list.
Status read_patterns(const JsonValue& list, std::vector<NamePattern>& out);
// kv_cache_quant_algo (a string) or kv_cache_scheme (a string, or {"type": "float", "num_bits": 8}).
Status read_kv_cache(const JsonValue& section, QuantConfig& config);

// {num_bits, type, strategy, group_size, scale_dtype} of ModelOpt's and compressed-tensors' groups.
struct WeightArgs {
  int64_t bits = 0;
  std::string_view type = "int", strategy, scale_dtype;
  int64_t group_size = 0;  // 0: none
};
Result<WeightArgs> read_weight_args(const JsonValue& weights);
// The format that a group's weights and (if any) input_activations have.
Result<ModuleQuant> quant_of_group(const JsonValue& group);

}  // namespace halfbyte
