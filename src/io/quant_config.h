// What a checkpoint says about its quantisation: one description, whichever tool, file and spelling it came from.
//
//   ModelOpt            NVFP4, W4A16_NVFP4, NVFP4_AWQ, W4A8_NVFP4_FP8, MXFP4, W4A8_MXFP4_FP8, FP8 (tensor, channel, block),
//                       MXFP8, MIXED_PRECISION of these
//   compressed-tensors  nvfp4 (W4A4, A16), mxfp4, mxfp8, float8; any number of groups
//   Quark               MXFP4, FP8
//   "mxfp4", "fp8"      the plain methods of transformers (gpt-oss; blocks of 128 x 128)
//
// Everything else (integer weights, GPTQ, FP-Quant's rotated weights, ...) is a kUnsupported error that names it. The
// lists only predict; linear_facts decides by the tensors that are there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/name_pattern.h"

namespace halfbyte {

enum class ModuleQuant : uint8_t {
  kNone,        // plain weight
  kNVFP4,       // W4A4: NVFP4 weight, an input scale is expected
  kNVFP4W4A16,  // NVFP4 weight only
  kNVFP4Wide,   // W4A8_NVFP4_FP8: as NVFP4, with one E4M3 scale for 32 elements
  kMXFP4,       // whatever its activations are
  kFP8,         // E4M3 weight; one FP32 scale a tensor, a row, or a block of rows and columns
  kMXFP8        // E4M3 weight; one E8M0 scale for 32 elements
};
const char* name_of(ModuleQuant quant);  // "unquantised", "NVFP4", "W4A16_NVFP4", ...

// Modules that one entry of a list stands for.
struct QuantTarget {
  NamePattern pattern;
  ModuleQuant quant = ModuleQuant::kNone;
};

// How the entries of a list of exceptions match a module's name.
enum class ExcludeRule : uint8_t {
  kFnmatch,    // names and fnmatch patterns; a match stands for everything below it, too. ModelOpt, transformers, Quark
  kSubstring,  // likewise, and anywhere in the name: ModelOpt before 0.39
  kExact       // the whole name: compressed-tensors
};

struct QuantConfig {
  bool quantised = false;
  std::string file;       // the file that was believed: "config.json" or "hf_quant_config.json"; "" if none
  std::string scheme;     // who wrote it: "ModelOpt", "compressed-tensors", "Quark", "MXFP4", "FP8"
  std::string algorithm;  // as written: "NVFP4", "MIXED_PRECISION", "nvfp4-pack-quantized"; may be empty
  std::string producer;   // "modelopt 0.37.0"
  std::string kv_cache;   // "", "FP8", "NVFP4", ... as written; scales are optional
  ModuleQuant default_quant = ModuleQuant::kNone;  // for modules that no list names
  std::vector<NamePattern> exclude;                // unquantised; also "re:..."
  ExcludeRule exclude_rule = ExcludeRule::kFnmatch;
  std::map<std::string, ModuleQuant, std::less<>> layers;  // by module name: before everything else
  std::vector<QuantTarget> targets;                        // regular expressions and patterns, in order of precedence
  int64_t fp8_block_rows = 128, fp8_block_columns = 128;   // of FP8 weights with a scale a block
  std::vector<std::string> warnings;                       // e.g. the two files disagree

  // What the lists predict for a module, by its on-disk name ("model.layers.0.self_attn.q_proj", "lm_head").
  ModuleQuant for_module(std::string_view module) const;
};

// Either text may be empty (no such file). config_json is the whole config.json. config.json wins where both speak, as
// in vLLM and SGLang; a difference is a warning. Messages name the files of this folder.
Result<QuantConfig> parse_quant_config(std::string_view config_json, std::string_view hf_quant_config_json,
                                       const std::string& folder = "");
// From the folder's files; an unquantised description when neither says anything.
Result<QuantConfig> read_quant_config(const std::string& folder);

}  // namespace halfbyte
