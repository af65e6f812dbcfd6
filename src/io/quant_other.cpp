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

// {"weight": {"dtype": "fp4", "qscheme": "per_group", "group_size": 32, "scale_format": "e8m0", ...}, ...}
Result<ModuleQuant> quark_quant(const JsonValue& spec) {
  const auto weight = spec.find_set("weight");
  if (!weight) return ModuleQuant::kNone;
  if (weight->is_array()) return unsupported_quant(*weight, "has two levels of scales (Quark's NVFP4)");
  HB_ASSIGN(const std::string_view type, text_at(*weight, "dtype"));
  HB_ASSIGN(const std::string_view scheme, text_at(*weight, "qscheme"));
  HB_ASSIGN(const std::string_view scale, text_at(*weight, "scale_format"));
  int64_t size = 0;
  if (const auto group_size = weight->find_set("group_size")) {
    HB_ASSIGN(size, group_size->as_int(-1, 1 << 20));
  }
  if (type == "fp4" && scheme == "per_group" && size == 32 && scale == "e8m0") return ModuleQuant::kMXFP4;
  if (type == "fp8_e4m3" && (scheme == "per_tensor" || scheme == "per_channel")) return ModuleQuant::kFP8;
  return unsupported_quant(
      *weight, "has weights of type " + quote(type) + ", " + quote(scheme) + ", group size " + std::to_string(size));
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
