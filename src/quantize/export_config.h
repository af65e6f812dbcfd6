// The JSON files beside the weights.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/hf_config.h"

namespace halfbyte {

// What the writer did, for the configuration files.
struct ExportedQuantization {
  bool quantised = false;
  std::vector<std::string> exclude;  // modules that stayed BF16, "lm_head" first
};

// The source's config.json with dtype bfloat16 and the quantisation replaced; other fields keep their order and values.
Result<std::string> rewrite_config(std::string_view config_json, const ExportedQuantization& quantization);
// A config.json from facts (a GGUF file's), as transformers writes it.
Result<std::string> make_config(const HfConfig& config, const ExportedQuantization& quantization);
// hf_quant_config.json.
std::string make_hf_quant_config(const ExportedQuantization& quantization);
// generation_config.json.
std::string make_generation_config(const GenerationConfig& generation);

}  // namespace halfbyte
