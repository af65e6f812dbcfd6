// Presets, the one-line form and the per-layer resolution of precision plans. The JSON form is in plan_json.cpp.
#include "halfbyte/plan.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/quote.h"
#include "base/result.h"
#include "model/plan_fields.h"

namespace halfbyte {
namespace {

template <class Kind, size_t N>
using Names = std::array<std::pair<Kind, const char*>, N>;

constexpr Names<WeightKind, 7> kWeightNames{{{WeightKind::kF32, "f32"},
                                             {WeightKind::kBF16, "bf16"},
                                             {WeightKind::kFP8, "fp8"},
                                             {WeightKind::kNVFP4, "nvfp4"},
                                             {WeightKind::kMXFP4, "mxfp4"},
                                             {WeightKind::kInt4, "int4"},
                                             {WeightKind::kInt3, "int3"}}};
constexpr Names<ActivationKind, 4> kActivationNames{{{ActivationKind::kF32, "f32"},
                                                     {ActivationKind::kBF16, "bf16"},
                                                     {ActivationKind::kFP8, "fp8"},
                                                     {ActivationKind::kFP4, "fp4"}}};
constexpr Names<ActivationScale, 2> kScaleNames{
    {{ActivationScale::kStatic, "static"}, {ActivationScale::kPerToken, "per_token"}}};
constexpr Names<KvKind, 5> kKvNames{{{KvKind::kF32, "f32"},
                                     {KvKind::kBF16, "bf16"},
                                     {KvKind::kFP8, "fp8"},
                                     {KvKind::kNVFP4, "nvfp4"},
                                     {KvKind::kE1M2, "e1m2"}}};
constexpr Names<KvScale, 2> kKvScaleNames{{{KvScale::kOne, "1"}, {KvScale::kCheckpoint, "checkpoint"}}};

template <class Kind, size_t N>
const char* name_in(const Names<Kind, N>& names, Kind kind) {
  for (const auto& [k, name] : names)
    if (k == kind) return name;
  return "?";
}

template <class Kind, size_t N>
Status set_by_name(const Names<Kind, N>& names, std::string_view field, std::string_view value, Kind& out) {
  std::string known;
  for (const auto& [kind, name] : names) {
    if (value == name) {
      out = kind;
      return {};
    }
    known += (known.empty() ? "" : ", ") + std::string(name);
  }
  return invalid_argument("plan field " + quote(field) + " has value " + quote(value) + ", expected one of " + known);
}

bool is_fp4(WeightKind kind) {
  return kind == WeightKind::kNVFP4 || kind == WeightKind::kMXFP4;
}

// The activations that a linear falls to when only its weights are changed and the old activations do not fit them.
ActivationKind natural_activations(WeightKind weights) {
  return weights == WeightKind::kF32 ? ActivationKind::kF32 : ActivationKind::kBF16;
}

void set_weights(LinearPlan& plan, WeightKind weights) {
  plan.weights = weights;
  if (!check_linear_plan(plan).ok()) plan.activations = natural_activations(weights);
}

void apply(const LinearOverride& change, LinearPlan& plan) {
  const auto has = [&](std::string_view field) {
    return std::find(change.fields.begin(), change.fields.end(), field) != change.fields.end();
  };
  if (has("weights")) set_weights(plan, change.values.weights);
  if (has("activations")) plan.activations = change.values.activations;
  if (has("activation_scale")) plan.activation_scale = change.values.activation_scale;
}

struct Preset {
  const char* name;
  LinearPlan linear;
  LinearPlan head;
  WeightKind embedding;
  KvKind kv;
};

constexpr LinearPlan kF32Linear{WeightKind::kF32, ActivationKind::kF32, ActivationScale::kPerToken};
constexpr LinearPlan kBF16Linear{WeightKind::kBF16, ActivationKind::kBF16, ActivationScale::kPerToken};

constexpr Preset fp4_preset(const char* name, WeightKind weights, ActivationKind activations) {
  return {name, {weights, activations, ActivationScale::kPerToken}, kBF16Linear, WeightKind::kBF16, KvKind::kBF16};
}

constexpr Preset bf16_input_preset(const char* name, WeightKind weights) {
  return {name,
          {weights, ActivationKind::kBF16, ActivationScale::kPerToken},
          kBF16Linear,
          WeightKind::kBF16,
          KvKind::kBF16};
}

constexpr std::array<Preset, 11> kPresets{{
    {"f32", kF32Linear, kF32Linear, WeightKind::kF32, KvKind::kF32},
    {"bf16", kBF16Linear, kBF16Linear, WeightKind::kBF16, KvKind::kBF16},
    fp4_preset("w4a16", WeightKind::kNVFP4, ActivationKind::kBF16),
    fp4_preset("w4a8", WeightKind::kNVFP4, ActivationKind::kFP8),
    fp4_preset("w4a4", WeightKind::kNVFP4, ActivationKind::kFP4),
    fp4_preset("w4a16-mxfp4", WeightKind::kMXFP4, ActivationKind::kBF16),
    fp4_preset("w4a8-mxfp4", WeightKind::kMXFP4, ActivationKind::kFP8),
    fp4_preset("w4a4-mxfp4", WeightKind::kMXFP4, ActivationKind::kFP4),
    bf16_input_preset("w8a16", WeightKind::kFP8),
    bf16_input_preset("int4", WeightKind::kInt4),
    bf16_input_preset("int3", WeightKind::kInt3),
}};

// Glob with * and ?. Linear in text * pattern: the last * is the only place to come back to.
bool glob_matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

// "field=value" for the whole plan.
Status set_plan_field(PrecisionPlan& plan, std::string_view field, std::string_view value) {
  constexpr std::string_view kHead = "head.";
  if (field == "kv") return set_kv(plan, value);
  if (field == "kv_scale") return set_kv_scale(plan, value);
  if (field == "query")
    return unsupported("plan field 'query' cannot be chosen yet: queries are used in FP32, unrounded; leave it out");
  if (field == "embedding") return set_embedding(plan, value);
  if (field.starts_with(kHead)) return set_linear_field(plan.head, field.substr(kHead.size()), value);
  if (is_linear_field(field)) return set_linear_field(plan.linear, field, value);
  return invalid_argument(
      "plan field " + quote(field) +
      " is not known, expected weights, activations, activation_scale, head.weights, "
      "head.activations, head.activation_scale, embedding, kv, kv_scale, or PATTERN:FIELD for single layers");
}

// "pattern:field=value". Neighbouring parts with one pattern make one override.
Status add_override(PrecisionPlan& plan, std::string_view pattern, std::string_view field, std::string_view value) {
  if (pattern.empty())
    return invalid_argument("plan part " + quote(":" + std::string(field)) + " has no layer pattern before ':'");
  if (plan.overrides.empty() || plan.overrides.back().pattern != pattern)
    plan.overrides.push_back({std::string(pattern), {}, {}});
  LinearOverride& change = plan.overrides.back();
  if (!is_linear_field(field))
    return invalid_argument("plan field " + quote(field) +
                            " is not one of a layer, expected weights, activations or "
                            "activation_scale");
  // set_linear_field() would move activations along with weights; an override holds exactly what was written.
  LinearPlan written;
  HB_TRY(set_linear_field(written, field, value));
  if (field == "weights") change.values.weights = written.weights;
  if (field == "activations") change.values.activations = written.activations;
  if (field == "activation_scale") change.values.activation_scale = written.activation_scale;
  if (std::find(change.fields.begin(), change.fields.end(), field) == change.fields.end())
    change.fields.emplace_back(field);
  return {};
}

}  // namespace

const char* name_of(WeightKind kind) {
  return name_in(kWeightNames, kind);
}
const char* name_of(ActivationKind kind) {
  return name_in(kActivationNames, kind);
}
const char* name_of(ActivationScale kind) {
  return name_in(kScaleNames, kind);
}
const char* name_of(KvKind kind) {
  return name_in(kKvNames, kind);
}
const char* name_of(KvScale kind) {
  return name_in(kKvScaleNames, kind);
}

Result<KvKind> parse_kv(std::string_view name) {
  KvKind kind{};
  HB_TRY(set_by_name(kKvNames, "kv", name, kind));
  return kind;
}

bool is_linear_field(std::string_view field) {
  return field == "weights" || field == "activations" || field == "activation_scale";
}

Status set_linear_field(LinearPlan& plan, std::string_view field, std::string_view value) {
  if (field == "weights") {
    WeightKind weights{};
    HB_TRY(set_by_name(kWeightNames, field, value, weights));
    set_weights(plan, weights);
    return {};
  }
  if (field == "activations") return set_by_name(kActivationNames, field, value, plan.activations);
  if (field == "activation_scale") return set_by_name(kScaleNames, field, value, plan.activation_scale);
  return invalid_argument("plan field " + quote(field) +
                          " is not known, expected weights, activations or activation_scale");
}

Status set_embedding(PrecisionPlan& plan, std::string_view value) {
  WeightKind kind{};
  HB_TRY(set_by_name(kWeightNames, "embedding", value, kind));
  if (kind != WeightKind::kF32 && kind != WeightKind::kBF16)
    return invalid_argument("plan field 'embedding' has value " + quote(value) + ", expected f32 or bf16");
  plan.embedding = kind;
  return {};
}

Status set_kv(PrecisionPlan& plan, std::string_view value) {
  return set_by_name(kKvNames, "kv", value, plan.kv);
}

Status set_kv_scale(PrecisionPlan& plan, std::string_view value) {
  return set_by_name(kKvScaleNames, "kv_scale", value, plan.kv_scale);
}

Status check_linear_plan(const LinearPlan& plan) {
  const bool four_or_eight = plan.activations == ActivationKind::kFP4 || plan.activations == ActivationKind::kFP8;
  if (four_or_eight && !is_fp4(plan.weights))
    return invalid_argument(std::string(name_of(plan.activations)) + " activations with " + name_of(plan.weights) +
                            " weights: they need nvfp4 or mxfp4 weights");
  return {};
}

bool LinearOverride::matches(std::string_view name) const {
  return glob_matches(pattern, name);
}

LinearPlan PrecisionPlan::linear_for(std::string_view name) const {
  LinearPlan out = name == "lm_head" ? head : linear;
  for (const LinearOverride& change : overrides)
    if (change.matches(name)) apply(change, out);
  return out;
}

std::vector<std::string> plan_preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

Result<PrecisionPlan> plan_preset(std::string_view name) {
  std::string known;
  for (const Preset& preset : kPresets) {
    if (name == preset.name) {
      PrecisionPlan plan;
      plan.preset = preset.name;
      plan.linear = preset.linear;
      plan.head = preset.head;
      plan.embedding = preset.embedding;
      plan.kv = preset.kv;
      return plan;
    }
    known += (known.empty() ? "" : ", ") + std::string(preset.name);
  }
  return invalid_argument("plan " + quote(name) + " is not known, expected one of " + known);
}

Result<PrecisionPlan> parse_plan(std::string_view text) {
  std::optional<PrecisionPlan> plan;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = trimmed(text.substr(0, comma));
    if (!plan) {
      HB_ASSIGN(plan, plan_preset(part));
    } else {
      const size_t equals = part.find('=');
      if (equals == std::string_view::npos)
        return invalid_argument("plan part " + quote(part) +
                                " has no '=', expected FIELD=VALUE or PATTERN:FIELD=VALUE");
      const std::string_view field = part.substr(0, equals), value = part.substr(equals + 1);
      const size_t colon = field.rfind(':');
      if (colon == std::string_view::npos) {
        HB_TRY(set_plan_field(*plan, field, value));
      } else {
        HB_TRY(add_override(*plan, field.substr(0, colon), field.substr(colon + 1), value));
      }
    }
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  HB_TRY(check_plan(*plan));
  return std::move(*plan);
}

std::string plan_to_text(const PrecisionPlan& plan) {
  std::string text = plan.preset;
  // What the text says so far: weights move activations along, so each field is compared behind the ones before it.
  auto preset = plan_preset(plan.preset);
  PrecisionPlan said = preset.ok() ? std::move(preset).value() : PrecisionPlan{};
  const auto say = [&](const std::string& prefix, std::string_view field, std::string_view value) {
    text += "," + prefix + std::string(field) + "=" + std::string(value);
  };
  const auto say_linear = [&](const std::string& prefix, LinearPlan& from, const LinearPlan& to) {
    if (from.weights != to.weights) {
      say(prefix, "weights", name_of(to.weights));
      set_weights(from, to.weights);
    }
    if (from.activations != to.activations) say(prefix, "activations", name_of(to.activations));
    if (from.activation_scale != to.activation_scale) say(prefix, "activation_scale", name_of(to.activation_scale));
  };
  say_linear("", said.linear, plan.linear);
  say_linear("head.", said.head, plan.head);
  if (said.embedding != plan.embedding) say("", "embedding", name_of(plan.embedding));
  if (said.kv != plan.kv) say("", "kv", name_of(plan.kv));
  if (said.kv_scale != plan.kv_scale) say("", "kv_scale", name_of(plan.kv_scale));
  for (const LinearOverride& change : plan.overrides) {
    for (const std::string& field : change.fields) {
      say(change.pattern + ":", field,
          field == "weights"       ? name_of(change.values.weights)
          : field == "activations" ? name_of(change.values.activations)
                                   : name_of(change.values.activation_scale));
    }
  }
  return text;
}

Status check_plan(const PrecisionPlan& plan) {
  HB_TRY(check_linear_plan(plan.linear).with_context("plan"));
  HB_TRY(check_linear_plan(plan.head).with_context("plan: head"));
  for (const LinearOverride& change : plan.overrides)
    if (change.fields.size() >= 2 &&
        change.fields.end() != std::find(change.fields.begin(), change.fields.end(), "weights") &&
        change.fields.end() != std::find(change.fields.begin(), change.fields.end(), "activations"))
      HB_TRY(check_linear_plan(change.values).with_context("plan: " + quote(change.pattern)));
  return {};
}

}  // namespace halfbyte
