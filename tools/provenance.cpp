#include "provenance.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

namespace halfbyte::tools {
namespace {

std::vector<const LinearTask*> linears(const LoadPlan& plan) {
  std::vector<const LinearTask*> out;
  for (const LayerTask& l : plan.layers) out.insert(out.end(), {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down});
  out.push_back(&plan.head);
  return out;
}

std::string planned(const LinearTask& task) {
  const std::string plan =
      fmt::format("{} weights, {} input", name_of(task.plan.weights), name_of(task.plan.activations));
  return plan + (task.stored_as_planned                   ? ", as stored"
                 : task.facts.quant == ModuleQuant::kNone ? ", rounded at load"
                                                          : ", converted at load");
}

// A scalar, or nothing when it cannot be read: loading will say why.
std::optional<float> scalar(const ModelSource& source, const TensorInfo* tensor) {
  if (tensor == nullptr) return std::nullopt;
  const auto value = load_scale(*source.tensors, *tensor);
  return value.ok() ? std::optional(*value) : std::nullopt;
}

}  // namespace

std::map<std::string, std::string> tensor_roles(const LoadPlan& plan) {
  std::map<std::string, std::string> roles;
  if (plan.embedding != nullptr)
    roles[plan.embedding->name] =
        fmt::format("embedding: {}", plan.embedding_as_stored ? "as stored" : "rounded at load");
  for (const LinearTask* task : linears(plan)) {
    const std::string text = describe(task->facts) + ": " + planned(*task);
    for (const TensorInfo* tensor : task->facts.stored) {
      std::string& role = roles[tensor->name];
      if (tensor == task->facts.weight) {
        role = role.empty() ? text : role + "; as the head: " + text;
      } else if (role.empty()) {
        const LinearFacts& f = task->facts;
        role =
            tensor == f.bias ? "bias"
            : tensor == f.block_scales || tensor == f.tensor_scale || tensor == f.input_scale || tensor == f.pre_scale
                ? "scale"
                : "not used: the weights are stored for inputs of 16 bits or MX blocks";
      }
    }
  }
  for (const LayerTask& layer : plan.layers) {
    for (const TensorInfo* norm : {layer.attention_norm, layer.mlp_norm, layer.q_norm, layer.k_norm})
      if (norm != nullptr) roles[norm->name] = "norm: FP32";
    for (const TensorInfo* scale : {layer.key_scale, layer.value_scale})
      if (scale != nullptr) roles[scale->name] = "scale of the KV cache";
  }
  if (plan.final_norm != nullptr) roles[plan.final_norm->name] = "norm: FP32";
  return roles;
}

std::vector<std::pair<std::string, int>> stored_formats(const LoadPlan& plan) {
  std::map<std::string, int> counts;
  for (const LinearTask* task : linears(plan)) {
    LinearFacts facts = task->facts;
    facts.bias = nullptr;  // says nothing about the format
    const bool fp8 = facts.quant == ModuleQuant::kFP8 || facts.quant == ModuleQuant::kMXFP8;
    ++counts[describe(facts) + (fp8 ? fmt::format("; {} from loading on", name_of(task->plan.weights)) : "")];
  }
  std::vector<std::pair<std::string, int>> out(counts.begin(), counts.end());
  std::stable_sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

std::string kv_cache_text(const ModelSource& source, const LoadPlan& plan) {
  int scales = 0;
  for (const TensorInfo& t : source.tensors->tensors())
    if (t.name.ends_with("k_scale") || t.name.ends_with("v_scale")) ++scales;
  if (scales == 0 && source.quant.kv_cache.empty()) return "";
  const std::string said =
      source.quant.kv_cache.empty() ? "the checkpoint has scales" : source.quant.kv_cache + " in the checkpoint";
  const bool wanted = plan.plan.kv != KvKind::kF32 && plan.plan.kv != KvKind::kBF16;
  const char* use = !wanted ? "not used: the plan's cache has none (--kv fp8 uses them)"
                    : plan.plan.kv_scale == KvScale::kCheckpoint ? "used where they are, else 1"
                                                                 : "not used: kv_scale is 1";
  return fmt::format("{}, {} scales of {}; {}", said, scales, 2 * plan.config.layers, use);
}

std::vector<std::string> doubts(const ModelSource& source, const LoadPlan& plan) {
  std::vector<std::string> out;
  int constant = 0, with_input = 0, split_weights = 0, split_inputs = 0;
  for (const LinearTask* task : linears(plan)) {
    const auto scale = scalar(source, task->facts.input_scale);
    if (!scale) continue;
    ++with_input;
    constant += *scale == 1.0f ? 1 : 0;
  }
  // Do linears with one input differ in this scale?
  const auto differ = [&](std::initializer_list<const LinearTask*> group, const TensorInfo* LinearFacts::*which) {
    std::optional<float> first;
    for (const LinearTask* task : group) {
      const auto scale = scalar(source, task->facts.*which);
      if (!scale) return false;
      if (first && *first != *scale) return true;
      first = scale;
    }
    return false;
  };
  for (const LayerTask& l : plan.layers) {
    for (const auto& group : {std::initializer_list<const LinearTask*>{&l.q, &l.k, &l.v}, {&l.gate, &l.up}}) {
      split_weights += differ(group, &LinearFacts::tensor_scale) ? 1 : 0;
      split_inputs += differ(group, &LinearFacts::input_scale) ? 1 : 0;
    }
  }
  if (constant > 0)
    out.push_back(fmt::format("{} of {} input scales are exactly 1 (an amax of 2688): constants, not calibrated",
                              constant, with_input));
  if (split_weights > 0)
    out.push_back(
        fmt::format("{} groups of linears with one input (q, k, v; gate, up) have several tensor scales; each "
                    "keeps its own here, engines that fuse them do not",
                    split_weights));
  if (split_inputs > 0)
    out.push_back(
        fmt::format("{} groups of linears with one input have several input scales; with activation_scale=static "
                    "the input is rounded once for each",
                    split_inputs));
  return out;
}

}  // namespace halfbyte::tools
