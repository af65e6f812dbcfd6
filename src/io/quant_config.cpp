#include "io/quant_config.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/json.h"
#include "io/message.h"
#include "io/quant_sections.h"
#include "io/read_file.h"

namespace halfbyte {
namespace {

constexpr const char* kConfigFile = "config.json";
constexpr const char* kHfQuantFile = "hf_quant_config.json";
constexpr std::string_view kSupported =
    "; supported: NVFP4, MXFP4, FP8 and MXFP8 weights of ModelOpt, compressed-tensors and Quark";

// The section that describes the quantisation: flat (config.json, newer hf_quant_config.json) or under "quantization".
Result<QuantConfig> parse_section(const JsonValue& outer, const std::string& file) {
  QuantConfig config;
  config.file = file;
  JsonValue section = outer;
  if (const auto nested = outer.find_set("quantization"); nested && nested->is_object()) section = *nested;
  std::string_view method;
  std::optional<JsonValue> where;
  for (const JsonValue& at : {outer, section}) {
    where = at.find_set("quant_method");
    if (!where) continue;
    HB_ASSIGN(method, where->as_string());
    break;
  }
  // ModelOpt's algorithm is believed even where the method names the base model's format (DeepSeek-V4: "fp8").
  const bool modelopt = method.empty() || method.starts_with("modelopt") || section.find_set("quant_algo");
  if (modelopt) {
    HB_TRY(read_modelopt_section(outer, section, config));
  } else if (method == "compressed-tensors") {
    HB_TRY(read_compressed_tensors_section(section, config));
  } else if (method == "quark") {
    HB_TRY(read_quark_section(section, config));
  } else if (method == "mxfp4" || method == "fp8") {
    HB_TRY(read_plain_section(section, method, config));
  } else if (method == "fp_quant") {
    return unsupported_quant(*where,
                             "is 'fp_quant' (FP-Quant, MR-GPTQ): its weights are stored rotated by a Hadamard matrix, "
                             "and every linear's input must be rotated likewise");
  } else {
    return unsupported_quant(*where, "is " + quote(method));
  }
  return config;
}

std::string text_of(const std::vector<NamePattern>& patterns) {
  std::vector<std::string> names;
  for (const NamePattern& pattern : patterns) names.push_back(pattern.text);
  return names.empty() ? "nothing" : listed(names, 4);
}

// Engines differ in which file they trust, so a difference is worth a word.
void compare(const QuantConfig& other, QuantConfig& believed) {
  const auto differ = [&](const char* what, const std::string& a, const std::string& b) {
    if (a == b) return;
    believed.warnings.push_back(believed.file + " says " + what + " " + (a.empty() ? "none" : shown(a)) + ", " +
                                other.file + " says " + (b.empty() ? "none" : shown(b)) + "; using " + believed.file);
  };
  differ("quant_algo", believed.algorithm, other.algorithm);
  differ("kv cache", believed.kv_cache, other.kv_cache);
  std::vector<NamePattern> a = believed.exclude, b = other.exclude;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  if (a != b) differ("exclude_modules", text_of(a), text_of(b) + " (" + std::to_string(b.size()) + ")");
  if (believed.layers != other.layers) {
    differ("quantized_layers", std::to_string(believed.layers.size()) + " layers",
           std::to_string(other.layers.size()) + " other layers");
  }
}

bool excludes(const QuantConfig& config, std::string_view module) {
  return std::any_of(config.exclude.begin(), config.exclude.end(), [&](const NamePattern& pattern) {
    if (pattern.regex) return pattern.regex->matches(module);
    if (config.exclude_rule == ExcludeRule::kExact) return module == pattern.text;
    // An entry also stands for everything below it.
    if (fnmatch(module, pattern.text) || fnmatch(module, pattern.text + ".*")) return true;
    if (config.exclude_rule != ExcludeRule::kSubstring) return false;
    std::string_view plain = pattern.text;
    while (!plain.empty() && plain.back() == '*') plain.remove_suffix(1);
    return !plain.empty() && module.find(plain) != std::string_view::npos;
  });
}

bool matches(const NamePattern& pattern, std::string_view module) {
  return pattern.regex ? pattern.regex->matches(module) : fnmatch(module, pattern.text);
}

}  // namespace

Status unsupported_quant(const JsonValue& where, const std::string& text) {
  return unsupported(where.error(text + ", which is not supported" + std::string(kSupported)).message());
}

Status read_patterns(const JsonValue& list, std::vector<NamePattern>& out) {
  constexpr size_t kMaxRegexes = 1000;
  HB_ASSIGN(const auto items, list.elements());
  size_t regexes = 0;
  for (const JsonValue& item : items) {
    HB_ASSIGN(const std::string_view text, item.as_string());
    auto pattern = NamePattern::parse(text);
    if (!pattern.ok()) return item.error(pattern.status().message());
    if (pattern->regex && ++regexes > kMaxRegexes)
      return list.error("holds more than " + std::to_string(kMaxRegexes) + " regular expressions");
    out.push_back(std::move(*pattern));
  }
  return {};
}

Status read_kv_cache(const JsonValue& section, QuantConfig& config) {
  auto value = section.find_set("kv_cache_quant_algo");
  if (!value) value = section.find_set("kv_cache_scheme");
  if (!value) return {};
  if (!value->is_object()) {
    HB_ASSIGN(const std::string_view text, value->as_string());
    config.kv_cache = std::string(text);
    return {};
  }
  int64_t bits = 0;
  std::string_view type = "float";
  if (const auto n = value->find_set("num_bits")) {
    HB_ASSIGN(bits, n->as_int(1, 64));
  }
  if (const auto t = value->find_set("type")) {
    HB_ASSIGN(type, t->as_string());
  }
  config.kv_cache = type == "float" && bits == 8 ? "FP8" : std::string(type) + std::to_string(bits);
  return {};
}

const char* name_of(ModuleQuant quant) {
  switch (quant) {
    case ModuleQuant::kNone: return "unquantised";
    case ModuleQuant::kNVFP4: return "NVFP4";
    case ModuleQuant::kNVFP4W4A16: return "W4A16_NVFP4";
    case ModuleQuant::kNVFP4Wide: return "W4A8_NVFP4_FP8";
    case ModuleQuant::kMXFP4: return "MXFP4";
    case ModuleQuant::kFP8: return "FP8";
    case ModuleQuant::kMXFP8: return "MXFP8";
  }
  return "?";
}

ModuleQuant QuantConfig::for_module(std::string_view module) const {
  if (!quantised) return ModuleQuant::kNone;
  if (exclude_rule == ExcludeRule::kExact && excludes(*this, module)) return ModuleQuant::kNone;
  if (const auto it = layers.find(module); it != layers.end()) return it->second;
  for (const QuantTarget& target : targets)
    if (matches(target.pattern, module)) return target.quant;
  return excludes(*this, module) ? ModuleQuant::kNone : default_quant;
}

Result<QuantConfig> parse_quant_config(std::string_view config_json, std::string_view hf_quant_config_json,
                                       const std::string& folder) {
  std::optional<QuantConfig> first, second;
  if (!config_json.empty()) {
    HB_ASSIGN(const auto document, parse_model_json(config_json, shown(join_path(folder, kConfigFile))));
    auto section = document->root().find_set("quantization_config");
    if (!section) section = document->root().find_set("compression_config");
    if (section) {
      HB_TRY(section->members().status());
      HB_ASSIGN(first, parse_section(*section, kConfigFile));
    }
  }
  if (!hf_quant_config_json.empty()) {
    HB_ASSIGN(const auto document, parse_model_json(hf_quant_config_json, shown(join_path(folder, kHfQuantFile))));
    HB_TRY(document->root().members().status());
    HB_ASSIGN(second, parse_section(document->root(), kHfQuantFile));
  }
  if (!first && !second) return QuantConfig{};
  if (!first || (!first->quantised && second)) std::swap(first, second);
  if (second) compare(*second, *first);
  return std::move(*first);
}

Result<QuantConfig> read_quant_config(const std::string& folder) {
  HB_ASSIGN(const auto config, read_small_file(join_path(folder, kConfigFile)));
  HB_ASSIGN(const auto hf_quant, read_small_file(join_path(folder, kHfQuantFile)));
  if (hf_quant && hf_quant->empty())
    return invalid_data(shown(join_path(folder, kHfQuantFile)) +
                        ": is empty, expected ModelOpt's description of the quantisation; download it again, or remove "
                        "it if the weights are not quantised");
  return parse_quant_config(config ? std::string_view(*config) : "", hf_quant ? std::string_view(*hf_quant) : "",
                            folder);
}

}  // namespace halfbyte
