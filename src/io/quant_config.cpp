#include "io/quant_config.h"

#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <utility>

#include "base/json.h"
#include "io/message.h"
#include "io/read_file.h"

namespace halfbyte {
namespace {

constexpr std::string_view kSupported =
    "; supported: ModelOpt NVFP4, W4A16_NVFP4, and MIXED_PRECISION made of these two";

Status unsupported_here(const JsonValue& where, const std::string& text) {
  return unsupported(where.error(text + ", which is not supported yet" + std::string(kSupported)).message());
}

Result<ModuleQuant> parse_algorithm(const JsonValue& where, std::string_view name) {
  if (name == "NVFP4") return ModuleQuant::kNVFP4;
  if (name == "W4A16_NVFP4") return ModuleQuant::kNVFP4W4A16;
  return unsupported_here(where, "is quantised as " + quote(name));
}

Status read_strings(const JsonValue& list, std::vector<std::string>& out) {
  HB_ASSIGN(const auto items, list.elements());
  for (const JsonValue& item : items) {
    HB_ASSIGN(const std::string_view text, item.as_string());
    out.emplace_back(text);
  }
  return {};
}

Status read_group_size(const JsonValue& object, QuantConfig& config) {
  const auto value = object.find_set("group_size");
  if (!value) return {};
  HB_ASSIGN(config.group_size, value->as_int(1, 1 << 20));
  if (config.group_size != 16)
    return unsupported_here(*value, "is " + std::to_string(config.group_size) + ", NVFP4 has 16");
  return {};
}

// quantized_layers: {"model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16}, ...}
Status read_layers(const JsonValue& layers, QuantConfig& config) {
  HB_ASSIGN(const auto members, layers.members());
  for (const auto& [name, layer] : members) {
    HB_ASSIGN(const JsonValue algorithm, layer.at("quant_algo"));
    HB_ASSIGN(const std::string_view text, algorithm.as_string());
    HB_ASSIGN(const ModuleQuant quant, parse_algorithm(algorithm, text));
    HB_TRY(read_group_size(layer, config));
    config.layers.emplace(name, quant);
  }
  return {};
}

// kv_cache_quant_algo: a string; kv_cache_scheme: a string, or {"type": "float", "num_bits": 8}.
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

// "0.37.0" -> before 0.39. Development builds ("0.0.1.dev752") and unknown texts count as new.
bool is_old_modelopt(std::string_view version) {
  int major = 0, minor = 0;
  const char* const end = version.data() + version.size();
  const auto first = std::from_chars(version.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return false;
  const auto second = std::from_chars(first.ptr + 1, end, minor);
  return second.ec == std::errc() && version.find("dev") == std::string_view::npos && major == 0 && minor < 39;
}

Status read_producer(const JsonValue& section, QuantConfig& config) {
  const auto producer = section.find_set("producer");
  if (!producer || !producer->is_object()) return {};
  std::string_view name, version;
  if (const auto n = producer->find_set("name")) {
    HB_ASSIGN(name, n->as_string());
  }
  if (const auto v = producer->find_set("version")) {
    HB_ASSIGN(version, v->as_string());
  }
  config.producer = std::string(name) + (version.empty() ? "" : " " + std::string(version));
  config.substring_excludes = name == "modelopt" && is_old_modelopt(version);
  return {};
}

// One group of config_groups without a quant_algo beside it: {weights: {num_bits, type, group_size},
// input_activations}.
Result<std::string> algorithm_of_groups(const JsonValue& groups) {
  HB_ASSIGN(const auto members, groups.members());
  if (members.size() != 1)
    return unsupported_here(groups, "has " + std::to_string(members.size()) + " groups and no quant_algo");
  const JsonValue group = members.front().second;
  HB_ASSIGN(const JsonValue weights, group.at("weights"));
  HB_ASSIGN(const JsonValue bits_value, weights.at("num_bits"));
  HB_ASSIGN(const int64_t bits, bits_value.as_int(1, 64));
  HB_ASSIGN(const JsonValue type_value, weights.at("type"));
  HB_ASSIGN(const std::string_view type, type_value.as_string());
  int64_t size = 0;
  if (const auto group_size = weights.find_set("group_size")) {
    HB_ASSIGN(size, group_size->as_int(1, 1 << 20));
  }
  if (bits != 4 || type != "float" || size != 16) {
    return unsupported_here(weights, "has weights of " + std::to_string(bits) + " bits, type " + quote(type) +
                                         ", group size " + std::to_string(size));
  }
  return std::string(group.find_set("input_activations") ? "NVFP4" : "W4A16_NVFP4");
}

// The section that describes the quantisation: flat (config.json, newer hf_quant_config.json) or under "quantization".
Result<QuantConfig> parse_section(const JsonValue& outer, const std::string& file) {
  QuantConfig config;
  config.file = file;
  HB_TRY(read_producer(outer, config));
  JsonValue section = outer;
  if (const auto nested = outer.find_set("quantization"); nested && nested->is_object()) section = *nested;
  for (const JsonValue& at : {outer, section}) {
    const auto method = at.find_set("quant_method");
    if (!method) continue;
    HB_ASSIGN(const std::string_view name, method->as_string());
    if (name != "modelopt" && name != "modelopt_fp4") return unsupported_here(*method, "is " + quote(name));
  }
  if (const auto algorithm = section.find_set("quant_algo")) {
    HB_ASSIGN(const std::string_view text, algorithm->as_string());
    config.algorithm = std::string(text);
    if (text != "MIXED_PRECISION") {
      HB_ASSIGN(config.default_quant, parse_algorithm(*algorithm, text));
    }
  } else if (const auto groups = section.find_set("config_groups")) {
    HB_ASSIGN(config.algorithm, algorithm_of_groups(*groups));
    HB_ASSIGN(config.default_quant, parse_algorithm(*groups, config.algorithm));
  } else {
    return config;  // quant_algo null: nothing but perhaps the KV cache is quantised
  }
  config.quantised = true;
  HB_TRY(read_group_size(section, config));
  if (const auto layers = section.find_set("quantized_layers")) HB_TRY(read_layers(*layers, config));
  if (config.algorithm == "MIXED_PRECISION" && config.layers.empty()) {
    return section.error("is MIXED_PRECISION, but has no quantized_layers that say which layer has which format");
  }
  for (const char* key : {"exclude_modules", "ignore"}) {
    if (const auto list = section.find_set(key)) HB_TRY(read_strings(*list, config.exclude));
  }
  HB_TRY(read_kv_cache(section, config));
  return config;
}

std::string text_of(const std::vector<std::string>& names) {
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
  std::vector<std::string> a = believed.exclude, b = other.exclude;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  if (a != b) differ("exclude_modules", text_of(a), text_of(b) + " (" + std::to_string(b.size()) + ")");
  if (believed.layers != other.layers) {
    differ("quantized_layers", std::to_string(believed.layers.size()) + " layers",
           std::to_string(other.layers.size()) + " other layers");
  }
}

bool excludes(const QuantConfig& config, std::string_view module) {
  return std::any_of(config.exclude.begin(), config.exclude.end(), [&](const std::string& pattern) {
    if (fnmatch(module, pattern)) return true;
    // A plain name also stands for everything below it.
    if (module.size() > pattern.size() && module.starts_with(pattern) && module[pattern.size()] == '.') return true;
    if (!config.substring_excludes) return false;
    std::string_view plain = pattern;
    while (!plain.empty() && plain.back() == '*') plain.remove_suffix(1);
    return !plain.empty() && module.find(plain) != std::string_view::npos;
  });
}

// One element of a [set] at `at` (just after '['); sets `at` after the ']'. Nothing when the set is not closed.
std::optional<bool> match_set(std::string_view pattern, size_t& at, char c) {
  size_t i = at;
  const bool negated = i < pattern.size() && pattern[i] == '!';
  if (negated) ++i;
  bool found = false, first = true;
  for (; i < pattern.size() && (first || pattern[i] != ']'); first = false) {
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      found = found || (pattern[i] <= c && c <= pattern[i + 2]);
      i += 3;
    } else {
      found = found || pattern[i] == c;
      ++i;
    }
  }
  if (i >= pattern.size()) return std::nullopt;
  at = i + 1;
  return found != negated;
}

}  // namespace

const char* name_of(ModuleQuant quant) {
  switch (quant) {
    case ModuleQuant::kNone: return "unquantised";
    case ModuleQuant::kNVFP4: return "NVFP4";
    case ModuleQuant::kNVFP4W4A16: return "W4A16_NVFP4";
  }
  return "?";
}

bool fnmatch(std::string_view text, std::string_view pattern) {
  // Greedy with one way back, to the last '*': enough, since a later '*' can take over what an earlier one would.
  size_t t = 0, p = 0, star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    bool matched = false;
    size_t next = p + 1;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
      continue;
    }
    if (p < pattern.size() && pattern[p] == '[') {
      const auto in_set = match_set(pattern, next, text[t]);
      matched = in_set ? *in_set : text[t] == '[';
    } else if (p < pattern.size()) {
      matched = pattern[p] == '?' || pattern[p] == text[t];
    }
    if (matched) {
      p = next;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

ModuleQuant QuantConfig::for_module(std::string_view module) const {
  if (!quantised) return ModuleQuant::kNone;
  if (const auto it = layers.find(module); it != layers.end()) return it->second;
  return excludes(*this, module) ? ModuleQuant::kNone : default_quant;
}

Result<QuantConfig> parse_quant_config(std::string_view config_json, std::string_view hf_quant_config_json) {
  std::optional<QuantConfig> first, second;
  if (!config_json.empty()) {
    HB_ASSIGN(const auto document, JsonDocument::parse(without_python_numbers(config_json), "config.json"));
    auto section = document->root().find_set("quantization_config");
    if (!section) section = document->root().find_set("compression_config");
    if (section) {
      HB_ASSIGN(first, parse_section(*section, "config.json"));
    }
  }
  if (!hf_quant_config_json.empty()) {
    HB_ASSIGN(const auto document, JsonDocument::parse(hf_quant_config_json, "hf_quant_config.json"));
    if (!document->root().is_object()) return document->root().error("is not an object");
    HB_ASSIGN(second, parse_section(document->root(), "hf_quant_config.json"));
  }
  if (!first && !second) return QuantConfig{};
  if (!first || (!first->quantised && second)) std::swap(first, second);
  if (second) compare(*second, *first);
  return std::move(*first);
}

Result<QuantConfig> read_quant_config(const std::string& folder) {
  HB_ASSIGN(const auto config, read_small_file(join_path(folder, "config.json")));
  HB_ASSIGN(const auto hf_quant, read_small_file(join_path(folder, "hf_quant_config.json")));
  return parse_quant_config(config ? std::string_view(*config) : "", hf_quant ? std::string_view(*hf_quant) : "");
}

}  // namespace halfbyte
