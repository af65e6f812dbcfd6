// NVIDIA ModelOpt's description: hf_quant_config.json and config.json's quantization_config.
#include <algorithm>
#include <charconv>
#include <utility>

#include "io/message.h"
#include "io/quant_sections.h"

namespace halfbyte {
namespace {

struct Algorithm {
  std::string_view name;  // upper case; older files write some of them in lower case
  ModuleQuant quant;
  int64_t group_size;  // that the format has; 0: any
};
constexpr Algorithm kAlgorithms[] = {{"NVFP4", ModuleQuant::kNVFP4, 16},
                                     {"W4A16_NVFP4", ModuleQuant::kNVFP4W4A16, 16},
                                     {"NVFP4_AWQ", ModuleQuant::kNVFP4, 16},
                                     {"W4A8_NVFP4_FP8", ModuleQuant::kNVFP4Wide, 32},
                                     {"MXFP4", ModuleQuant::kMXFP4, 32},
                                     {"W4A16_MXFP4", ModuleQuant::kMXFP4, 32},
                                     {"W4A8_MXFP4_FP8", ModuleQuant::kMXFP4, 32},
                                     {"FP8", ModuleQuant::kFP8, 0},
                                     {"FP8_PER_CHANNEL_PER_TOKEN", ModuleQuant::kFP8, 0},
                                     {"FP8_PB_WO", ModuleQuant::kFP8, 0},
                                     {"MXFP8", ModuleQuant::kMXFP8, 32}};

// Why an algorithm that people have is not read.
constexpr std::pair<std::string_view, std::string_view> kRefused[] = {
    {"NVFP4_SVD", " (SVDQuant): a low-rank product is added to every linear"},
    {"W4A16_AWQ", ": integer weights"},
    {"W4A8_AWQ", ": integer weights"},
    {"W8A16", ": integer weights"},
    {"W8A8_SQ_PER_CHANNEL", ": integer weights"}};

std::string upper(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return out;
}

// `where` is the name; `object` may hold a group_size.
Result<ModuleQuant> parse_algorithm(const JsonValue& where, std::string_view name, const JsonValue& object) {
  const std::string known = upper(name);
  for (const Algorithm& algorithm : kAlgorithms) {
    if (algorithm.name != known) continue;
    const auto size = object.find_set("group_size");
    if (!size || algorithm.group_size == 0) return algorithm.quant;
    HB_ASSIGN(const int64_t value, size->as_int(0, 1 << 20));
    if (value == algorithm.group_size || value == 0) return algorithm.quant;
    return unsupported_quant(*size, "is " + std::to_string(value) + ", " + std::string(algorithm.name) + " has " +
                                        std::to_string(algorithm.group_size));
  }
  std::string reason;
  for (const auto& [refused, why] : kRefused)
    if (refused == known) reason = why;
  return unsupported_quant(where, "is quantised as " + quote(name) + reason);
}

// quantized_layers: {"model.layers.0.mlp.up_proj": {"quant_algo": "W4A16_NVFP4", "group_size": 16}, ...}
Status read_layers(const JsonValue& layers, QuantConfig& config) {
  HB_ASSIGN(const auto members, layers.members());
  for (const auto& [name, layer] : members) {
    HB_ASSIGN(const JsonValue algorithm, layer.at("quant_algo"));
    HB_ASSIGN(const std::string_view text, algorithm.as_string());
    HB_ASSIGN(const ModuleQuant quant, parse_algorithm(algorithm, text, layer));
    config.layers.emplace(name, quant);
  }
  return {};
}

// config_groups of MIXED_PRECISION: each group's targets are names of layers.
Status read_groups(const JsonValue& groups, QuantConfig& config) {
  HB_ASSIGN(const auto members, groups.members());
  for (const auto& [name, group] : members) {
    HB_ASSIGN(const ModuleQuant quant, quant_of_group(group));
    HB_ASSIGN(const JsonValue list, group.at("targets"));
    HB_ASSIGN(const auto targets, list.elements());
    for (const JsonValue& target : targets) {
      HB_ASSIGN(const std::string_view text, target.as_string());
      config.layers.emplace(text, quant);
    }
  }
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
  if (name == "modelopt" && is_old_modelopt(version)) config.exclude_rule = ExcludeRule::kSubstring;
  return {};
}

// One group and no quant_algo beside it.
Result<ModuleQuant> quant_of_groups(const JsonValue& groups) {
  HB_ASSIGN(const auto members, groups.members());
  if (members.size() != 1)
    return unsupported_quant(groups, "has " + std::to_string(members.size()) + " groups and no quant_algo");
  return quant_of_group(members.front().second);
}

Status read_mixed(const JsonValue& section, QuantConfig& config) {
  if (const auto layers = section.find_set("quantized_layers")) {
    HB_TRY(read_layers(*layers, config));
  } else if (const auto groups = section.find_set("config_groups")) {
    HB_TRY(read_groups(*groups, config));
  }
  if (!config.layers.empty()) return {};
  return section.error("is MIXED_PRECISION, but has no quantized_layers that say which layer has which format");
}

}  // namespace

Result<WeightArgs> read_weight_args(const JsonValue& weights) {
  WeightArgs args;
  HB_ASSIGN(const JsonValue bits, weights.at("num_bits"));
  HB_ASSIGN(args.bits, bits.as_int(1, 64));
  for (const auto& [key, text] :
       {std::pair{"type", &args.type}, {"strategy", &args.strategy}, {"scale_dtype", &args.scale_dtype}}) {
    if (const auto value = weights.find_set(key)) {
      HB_ASSIGN(*text, value->as_string());
    }
  }
  if (const auto size = weights.find_set("group_size")) {
    HB_ASSIGN(args.group_size, size->as_int(-1, 1 << 20));
  }
  return args;
}

Result<ModuleQuant> quant_of_group(const JsonValue& group) {
  HB_ASSIGN(const JsonValue weights, group.at("weights"));
  HB_ASSIGN(const WeightArgs args, read_weight_args(weights));
  const bool activations = group.find_set("input_activations").has_value();
  if (args.type == "float" && args.bits == 4 && args.group_size == 16)
    return activations ? ModuleQuant::kNVFP4 : ModuleQuant::kNVFP4W4A16;
  if (args.type == "float" && args.bits == 4 && args.group_size == 32) return ModuleQuant::kMXFP4;
  if (args.type == "float" && args.bits == 8) {
    if (args.group_size == 32) return ModuleQuant::kMXFP8;
    if (args.group_size <= 0 || args.strategy == "block") return ModuleQuant::kFP8;
  }
  return unsupported_quant(weights, "has weights of " + std::to_string(args.bits) + " bits, type " + quote(args.type) +
                                        ", group size " + std::to_string(args.group_size));
}

Status read_modelopt_section(const JsonValue& outer, const JsonValue& section, QuantConfig& config) {
  config.scheme = "ModelOpt";
  HB_TRY(read_producer(outer, config));
  HB_TRY(read_kv_cache(section, config));
  if (const auto algorithm = section.find_set("quant_algo")) {
    HB_ASSIGN(const std::string_view text, algorithm->as_string());
    config.algorithm = std::string(text);
    if (text == "MIXED_PRECISION") {
      HB_TRY(read_mixed(section, config));
    } else {
      HB_ASSIGN(config.default_quant, parse_algorithm(*algorithm, text, section));
      if (const auto layers = section.find_set("quantized_layers")) HB_TRY(read_layers(*layers, config));
    }
  } else if (const auto groups = section.find_set("config_groups")) {
    HB_ASSIGN(config.default_quant, quant_of_groups(*groups));
    config.algorithm = name_of(config.default_quant);
  } else if (section.find("quant_algo") || !config.kv_cache.empty()) {
    return {};  // quant_algo null: nothing but perhaps the KV cache is quantised
  } else {
    return section.error(
        "says nothing of how the weights are quantised, expected quant_algo or config_groups; download the file again");
  }
  config.quantised = true;
  for (const char* key : {"exclude_modules", "ignore"})
    if (const auto list = section.find_set(key)) HB_TRY(read_patterns(*list, config.exclude));
  return {};
}

}  // namespace halfbyte
