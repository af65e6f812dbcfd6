// What a checkpoint says about its quantisation: one description, whichever of the two files and spellings it came
// from.
//
// Now read: ModelOpt NVFP4, W4A16_NVFP4 and MIXED_PRECISION made of these two. Everything else (compressed-tensors,
// FP8, MXFP4, AWQ, ...) is a kUnsupported error that names it. The lists only predict; load_quant_linear decides by the
// tensors that are there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

enum class ModuleQuant : uint8_t {
  kNone,       // plain weight
  kNVFP4,      // W4A4: NVFP4 weight, an input scale is expected
  kNVFP4W4A16  // NVFP4 weight only
};
const char* name_of(ModuleQuant quant);  // "unquantised", "NVFP4", "W4A16_NVFP4"

struct QuantConfig {
  bool quantised = false;
  std::string file;       // the file that was believed: "config.json" or "hf_quant_config.json"; "" if none
  std::string algorithm;  // quant_algo as written: "NVFP4", "W4A16_NVFP4", "MIXED_PRECISION"
  std::string producer;   // "modelopt 0.37.0"
  std::string kv_cache;   // "", "FP8", "NVFP4", ... as written; scales are optional
  int64_t group_size = 16;
  ModuleQuant default_quant = ModuleQuant::kNone;          // for modules that no list names
  std::vector<std::string> exclude;                        // names and fnmatch patterns: unquantised
  std::map<std::string, ModuleQuant, std::less<>> layers;  // MIXED_PRECISION: by module name
  bool substring_excludes = false;    // ModelOpt before 0.39 matched exclude entries anywhere in a name
  std::vector<std::string> warnings;  // e.g. the two files disagree

  // What the lists predict for a module, by its on-disk name ("model.layers.0.self_attn.q_proj", "lm_head").
  ModuleQuant for_module(std::string_view module) const;
};

// Either text may be empty (no such file). config_json is the whole config.json. config.json wins where both speak, as
// in vLLM and SGLang; a difference is a warning.
Result<QuantConfig> parse_quant_config(std::string_view config_json, std::string_view hf_quant_config_json);
// From the folder's files; an unquantised description when neither says anything.
Result<QuantConfig> read_quant_config(const std::string& folder);

// Python's fnmatch: * ? [abc] [!abc], the whole text. Time is bounded by text * pattern.
bool fnmatch(std::string_view text, std::string_view pattern);

}  // namespace halfbyte
