// halfbyte_plan.json, read and written.
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/quote.h"
#include "base/result.h"
#include "halfbyte/plan.h"
#include "model/plan_fields.h"

namespace halfbyte {
namespace {

// Raised when a reader of an older file would misunderstand it.
constexpr int kPlanVersion = 1;

nlohmann::ordered_json linear_json(const LinearPlan& plan) {
  return {{"weights", name_of(plan.weights)},
          {"activations", name_of(plan.activations)},
          {"activation_scale", name_of(plan.activation_scale)}};
}

Status unknown_key(const JsonValue& object, std::string_view key, const std::string& expected) {
  return object.error("unknown key " + quote(key) + ", expected " + expected +
                      "; a newer Halfbyte may have written this file");
}

// A field's text, with the path of the value in front of any complaint.
template <class Set>
Status set_from(const JsonValue& value, Set&& set) {
  HB_ASSIGN(const std::string_view text, value.as_string());
  if (Status status = set(text); !status.ok()) return value.error(status.message());
  return {};
}

Status read_linear(const JsonValue& object, LinearPlan& plan) {
  HB_ASSIGN(const auto members, object.members());
  for (const auto& [key, value] : members) {
    if (!is_linear_field(key)) return unknown_key(object, key, "weights, activations or activation_scale");
    HB_TRY(set_from(value, [&, field = key](std::string_view text) { return set_linear_field(plan, field, text); }));
  }
  return {};
}

Status read_override(const JsonValue& object, LinearOverride& change) {
  HB_ASSIGN(const auto members, object.members());
  for (const auto& [key, value] : members) {
    if (key == "pattern") {
      HB_ASSIGN(const std::string_view pattern, value.as_string());
      change.pattern = pattern;
      continue;
    }
    if (!is_linear_field(key)) return unknown_key(object, key, "pattern, weights, activations or activation_scale");
    LinearPlan written;
    HB_TRY(set_from(value, [&, field = key](std::string_view text) { return set_linear_field(written, field, text); }));
    if (key == "weights") change.values.weights = written.weights;
    if (key == "activations") change.values.activations = written.activations;
    if (key == "activation_scale") change.values.activation_scale = written.activation_scale;
    change.fields.emplace_back(key);
  }
  if (change.pattern.empty())
    return object.error("no 'pattern', expected a glob on layer names such as \"layers.0.*\"");
  return {};
}

Status read_reset(const JsonValue& object, ResetValues& reset) {
  HB_ASSIGN(const auto members, object.members());
  for (const auto& [key, value] : members) {
    if (key != "tau0" && key != "t_low") return unknown_key(object, key, "tau0 or t_low");
    HB_ASSIGN(const double number, value.as_double());
    if (number < 0 || number > 100) return value.error("found " + number_text(number) + ", expected 0 to 100");
    if (key == "tau0") reset.tau0 = number;
    if (key == "t_low") reset.t_low = static_cast<float>(number);
  }
  if (members.size() != 2) return object.error("one of tau0 and t_low is missing, expected both");
  return {};
}

Status read_plan(const JsonValue& root, PrecisionPlan& plan) {
  HB_ASSIGN(const auto members, root.members());
  // What the file leaves out is the preset's, so that a short plan by hand is the plan that it names.
  if (const auto preset = root.find("preset")) {
    HB_TRY(set_from(*preset, [&](std::string_view text) -> Status {
      HB_ASSIGN(plan, plan_preset(text));
      return {};
    }));
  }
  for (const auto& [key, value] : members) {
    if (key == "version") {
      HB_ASSIGN(const int64_t version, value.as_int(0, 1'000'000));
      if (version != kPlanVersion)
        return value.error("plan version " + std::to_string(version) + ", expected " + std::to_string(kPlanVersion));
    } else if (key == "preset") {  // read above
      continue;
    } else if (key == "linear") {
      HB_TRY(read_linear(value, plan.linear));
    } else if (key == "head") {
      HB_TRY(read_linear(value, plan.head));
    } else if (key == "embedding") {
      HB_TRY(set_from(value, [&](std::string_view text) { return set_embedding(plan, text); }));
    } else if (key == "kv") {
      HB_TRY(set_from(value, [&](std::string_view text) { return set_kv(plan, text); }));
    } else if (key == "kv_scale") {
      HB_TRY(set_from(value, [&](std::string_view text) { return set_kv_scale(plan, text); }));
    } else if (key == "overrides") {
      HB_ASSIGN(const auto elements, value.elements());
      for (const JsonValue& element : elements) HB_TRY(read_override(element, plan.overrides.emplace_back()));
    } else if (key == "reset") {
      HB_TRY(read_reset(value, plan.reset.emplace()));
    } else {
      return unknown_key(root, key, "version, preset, linear, head, embedding, kv, kv_scale, overrides or reset");
    }
  }
  return {};
}

}  // namespace

std::string plan_to_json(const PrecisionPlan& plan) {
  nlohmann::ordered_json out;
  out["version"] = kPlanVersion;
  out["preset"] = plan.preset;
  out["linear"] = linear_json(plan.linear);
  out["head"] = linear_json(plan.head);
  out["embedding"] = name_of(plan.embedding);
  out["kv"] = name_of(plan.kv);
  out["kv_scale"] = name_of(plan.kv_scale);
  out["overrides"] = nlohmann::ordered_json::array();
  for (const LinearOverride& change : plan.overrides) {
    const nlohmann::ordered_json values = linear_json(change.values);
    nlohmann::ordered_json item{{"pattern", change.pattern}};
    for (const std::string& field : change.fields) item[field] = values.at(field);
    out["overrides"].push_back(std::move(item));
  }
  if (plan.reset) out["reset"] = {{"tau0", plan.reset->tau0}, {"t_low", as_typed(plan.reset->t_low)}};
  return out.dump(2) + "\n";
}

Result<PrecisionPlan> plan_from_json(std::string_view json, std::string_view file_name) {
  HB_ASSIGN(const auto document, JsonDocument::parse(json, std::string(file_name)));
  PrecisionPlan plan;
  HB_TRY(read_plan(document->root(), plan));
  HB_TRY(check_plan(plan).with_context(std::string(file_name)));
  return plan;
}

}  // namespace halfbyte
