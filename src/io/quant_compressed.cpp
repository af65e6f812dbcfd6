// compressed-tensors' description: config.json's quantization_config as llm-compressor writes it.
#include <algorithm>
#include <charconv>
#include <utility>

#include "io/message.h"
#include "io/quant_sections.h"

namespace halfbyte {
namespace {

// "0.13.1" -> before 0.14.
bool before_0_14(std::string_view version) {
  int major = 0, minor = 0;
  const char* const end = version.data() + version.size();
  const auto first = std::from_chars(version.data(), end, major);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.') return false;
  return std::from_chars(first.ptr + 1, end, minor).ec == std::errc() && major == 0 && minor < 14;
}

// A target that is a class of PyTorch, not a module's name.
bool is_class_name(std::string_view target) {
  return !target.empty() && target[0] >= 'A' && target[0] <= 'Z' && target.find('.') == std::string_view::npos;
}

// What a file with these would mean differs from its tensors' plain reading.
Status refuse_transforms(const JsonValue& section) {
  if (const auto transform = section.find_set("transform_config")) {
    const auto groups = transform->find_set("config_groups");
    const bool empty = !groups || (groups->is_object() && groups->members()->empty());
    if (!empty) return unsupported_quant(*transform, "rotates weights and activations (QuIP, SpinQuant)");
  }
  if (const auto sparsity = section.find_set("sparsity_config")) {
    const auto format = sparsity->find_set("format");
    std::string_view name = "dense";
    if (format) {
      HB_ASSIGN(name, format->as_string());
    }
    if (name != "dense") return unsupported_quant(*format, "is " + quote(name) + " (sparse weights)");
  }
  return {};
}

struct Targets {
  std::vector<QuantTarget> names, regexes, classes;
};

Status read_group(const JsonValue& group, Targets& out) {
  if (!group.find_set("weights")) return {};  // activations of attention: no linear's weight
  HB_ASSIGN(const ModuleQuant quant, quant_of_group(group));
  HB_ASSIGN(const JsonValue list, group.at("targets"));
  std::vector<NamePattern> patterns;
  HB_TRY(read_patterns(list, patterns));
  for (NamePattern& pattern : patterns) {
    auto& kind = pattern.regex ? out.regexes : is_class_name(pattern.text) ? out.classes : out.names;
    kind.push_back({std::move(pattern), quant});
  }
  return {};
}

}  // namespace

// Order of precedence: names, then regular expressions, each in ascending order of their text, then classes, of which
// only Linear means anything here. `ignore` comes before all of them.
Status read_compressed_tensors_section(const JsonValue& section, QuantConfig& config) {
  config.scheme = "compressed-tensors";
  config.exclude_rule = ExcludeRule::kExact;
  if (const auto version = section.find_set("version")) {
    HB_ASSIGN(const std::string_view text, version->as_string());
    config.producer = "compressed-tensors " + std::string(text);
  }
  HB_TRY(refuse_transforms(section));
  HB_TRY(read_kv_cache(section, config));
  if (const auto format = section.find_set("format")) {
    HB_ASSIGN(const std::string_view text, format->as_string());
    config.algorithm = std::string(text);
  }
  const auto groups = section.find_set("config_groups");
  if (!groups) return {};
  HB_ASSIGN(const auto members, groups->members());
  Targets targets;
  for (const auto& [name, group] : members) HB_TRY(read_group(group, targets));
  const auto by_text = [](const QuantTarget& a, const QuantTarget& b) { return a.pattern < b.pattern; };
  for (auto* kind : {&targets.names, &targets.regexes, &targets.classes})
    std::stable_sort(kind->begin(), kind->end(), by_text);
  for (QuantTarget& target : targets.names) config.layers.emplace(std::move(target.pattern.text), target.quant);
  config.targets = std::move(targets.regexes);
  for (const QuantTarget& target : targets.classes)
    if (target.pattern.text == "Linear" && config.default_quant == ModuleQuant::kNone)
      config.default_quant = target.quant;
  config.quantised = !config.layers.empty() || !config.targets.empty() || config.default_quant != ModuleQuant::kNone;
  if (const auto list = section.find_set("ignore")) HB_TRY(read_patterns(*list, config.exclude));
  const auto version = section.find_set("version");
  const bool mxfp4 = config.algorithm.starts_with("mxfp4") || config.default_quant == ModuleQuant::kMXFP4;
  if (mxfp4 && version && before_0_14(*version->as_string())) {
    config.warnings.push_back(
        config.file + " was written by " + shown(config.producer) +
        ": MXFP4 files from before January 2026 may hold exponents with bias 125, which makes all "
        "values 4 times too small; they are read with bias 127");
  }
  return {};
}

}  // namespace halfbyte
