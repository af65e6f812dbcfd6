// AMD Quark's description, and the plain methods "mxfp4" (gpt-oss) and "fp8" (DeepSeek, Qwen) of transformers.
#include <utility>

#include "io/message.h"
#include "io/quant_sections.h"

namespace halfbyte {
namespace {

Result<std::string_view> text_at(const JsonValue& object, std::string_view key) {
  if (const auto value = object.find_set(key)) return value->as_string();
  return std::string_view();
}

// {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0", ...}
struct QuarkSpec {
  std::string_view type, scheme, scale;
  int64_t group_size = 0;
};

Result<QuarkSpec> read_spec(const JsonValue& json) {
  QuarkSpec spec;
  HB_ASSIGN(spec.type, text_at(json, "dtype"));
  HB_ASSIGN(spec.scheme, text_at(json, "qscheme"));
  HB_ASSIGN(spec.scale, text_at(json, "scale_format"));
  if (const auto group_size = json.find_set("group_size")) {
    HB_ASSIGN(spec.group_size, group_size->as_int(-1, 1 << 20));
  }
  return spec;
}

Status unsupported_spec(const JsonValue& json, const QuarkSpec& spec) {
  return unsupported_quant(json, "has weights of type " + quote(spec.type) + ", " + quote(spec.scheme) +
                                     ", group size " + std::to_string(spec.group_size));
}

// Two stages, of which the second quantises the first one's scales: NVFP4. Both of its scales multiply (amd-quark 0.13,
// export/nn/modules/realquantizer.py), as ModelOpt's do. Activations go through the same two stages; none: weight-only.
Result<ModuleQuant> two_stages(const JsonValue& layer, const JsonValue& weight) {
  HB_ASSIGN(const auto stages, weight.elements());
  if (stages.size() != 2)
    return unsupported_quant(weight, "has " + std::to_string(stages.size()) + " stages, expected one or two");
  HB_ASSIGN(const QuarkSpec first, read_spec(stages[0]));
  HB_ASSIGN(const QuarkSpec second, read_spec(stages[1]));
  if (first.type != "fp4" || first.scheme != "per_group" || first.group_size != 16)
    return unsupported_spec(stages[0], first);
  if (second.type != "fp8_e4m3" || second.scheme != "per_tensor") return unsupported_spec(stages[1], second);
  return layer.find_set("input_tensors") ? ModuleQuant::kNVFP4 : ModuleQuant::kNVFP4W4A16;
}

// {"weight": a spec or a list of stages, "input_tensors": the same, ...}
Result<ModuleQuant> quark_quant(const JsonValue& layer) {
  const auto weight = layer.find_set("weight");
  if (!weight) return ModuleQuant::kNone;
  if (weight->is_array()) return two_stages(layer, *weight);
  HB_ASSIGN(const QuarkSpec spec, read_spec(*weight));
  if (spec.type == "fp4" && spec.scheme == "per_group" && spec.group_size == 32 && spec.scale == "e8m0")
    return ModuleQuant::kMXFP4;
  if (spec.type == "fp8_e4m3" && (spec.scheme == "per_tensor" || spec.scheme == "per_channel"))
    return ModuleQuant::kFP8;
  return unsupported_spec(*weight, spec);
}

}  // namespace

Status read_quark_section(const JsonValue& section, QuantConfig& config) {
  config.scheme = "Quark";
  HB_ASSIGN(const JsonValue global, section.at("global_quant_config"));
  HB_ASSIGN(config.default_quant, quark_quant(global));
  if (const auto layers = section.find_set("layer_quant_config")) {
    HB_ASSIGN(const auto members, layers->members());
    for (const auto& [name, spec] : members) {
      HB_ASSIGN(const ModuleQuant quant, quark_quant(spec));
      auto pattern = NamePattern::parse(name);
      if (!pattern.ok()) return layers->error(pattern.status().message());
      config.targets.push_back({std::move(*pattern), quant});
    }
  }
  config.quantised = config.default_quant != ModuleQuant::kNone || !config.targets.empty();
  config.algorithm = name_of(config.default_quant);
  if (const auto list = section.find_set("exclude")) HB_TRY(read_patterns(*list, config.exclude));
  return {};
}

Status read_plain_section(const JsonValue& section, std::string_view method, QuantConfig& config) {
  const bool fp8 = method == "fp8";
  config.scheme = fp8 ? "FP8" : "MXFP4";
  config.default_quant = fp8 ? ModuleQuant::kFP8 : ModuleQuant::kMXFP4;
  config.quantised = true;
  if (const auto size = section.find_set("weight_block_size")) {
    HB_ASSIGN(const auto sides, size->elements());
    if (sides.size() != 2)
      return size->error("has " + std::to_string(sides.size()) + " numbers, expected rows and columns");
    HB_ASSIGN(config.fp8_block_rows, sides[0].as_int(1, 1 << 20));
    HB_ASSIGN(config.fp8_block_columns, sides[1].as_int(1, 1 << 20));
  }
  if (const auto list = section.find_set("modules_to_not_convert")) HB_TRY(read_patterns(*list, config.exclude));
  return {};
}

}  // namespace halfbyte
