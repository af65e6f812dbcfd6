// halfbyte inspect: what a model is, without loading it.
#include <fmt/format.h>

#include <map>
#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "base/cpu_topology.h"
#include "base/size_text.h"
#include "engine/cuda_api.h"
#include "json_text.h"
#include "kernels/registry.h"
#include "memory_fit.h"
#include "model/model_build.h"
#include "model_options.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  ModelOptions model;
  std::string batch = "1";
  bool fit = false, tensors = false, kernels_table = false, devices = false, json = false;
};

std::string dtype_name(const TensorInfo& t) {
  return std::string(dtype_info(t.dtype).name);
}

// Tensors and bytes of each element type, e.g. "272 Q4_1".
std::map<std::string, std::pair<int, uint64_t>> by_type(const TensorSource& source) {
  std::map<std::string, std::pair<int, uint64_t>> types;
  for (const TensorInfo& t : source.tensors()) {
    auto& [count, bytes] = types[dtype_name(t)];
    ++count;
    bytes += t.bytes;
  }
  return types;
}

std::string rope_text(const RopeFacts& rope) {
  return fmt::format("{}, theta {:g}{}", name_of(rope.kind), rope.theta,
                     rope.kind == RopeKind::kDefault ? "" : fmt::format(", factor {:g}", rope.factor));
}

std::string bytes_of_linears(const LoadPlan& plan) {
  std::map<std::string_view, std::pair<int, uint64_t>> kernels;
  const auto add = [&](const LinearTask& t) {
    auto& [count, bytes] = kernels[t.kernel->name];
    ++count;
    bytes += t.packed_bytes;
  };
  for (const LayerTask& l : plan.layers) {
    for (const LinearTask* t : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) add(*t);
  }
  add(plan.head);
  std::string out;
  for (const auto& [name, use] : kernels) {
    out += fmt::format("  {:<10} {} linear{}, {} by {}\n", "", use.first, use.first == 1 ? "" : "s",
                       format_bytes(use.second), name);
  }
  return out;
}

std::string model_text(const ModelSource& source, const LoadPlan& plan) {
  const ModelConfig& c = plan.config;
  const ModelSummary s = summarize(source, plan);
  std::string out;
  const auto row = [&](std::string_view name, const std::string& value) {
    out += fmt::format("  {:<10} {}\n", name, value);
  };
  row("model", s.path);
  row("source", source.tensors->describe());
  row("shape",
      fmt::format("{}: {} layers, hidden {}, MLP {}, {} heads of {}, {} KV heads, vocabulary {}", c.architecture,
                  c.layers, c.hidden, c.intermediate, c.heads, c.head_dim, c.kv_heads, c.vocab));
  row("parameters", fmt::format("{:.1f} M{}", static_cast<double>(s.parameters) / 1e6,
                                plan.tied_head ? ", head tied to the embedding" : ""));
  row("context", fmt::format("{} tokens, RoPE {}", c.context, rope_text(c.rope)));
  if (source.quant.quantised) row("quantised", fmt::format("{} by {}", source.quant.algorithm, source.quant.producer));
  std::string types;
  for (const auto& [name, use] : by_type(*source.tensors)) {
    types += fmt::format("{}{} {} ({})", types.empty() ? "" : ", ", use.first, name, format_bytes(use.second));
  }
  row("tensors", types);
  row("plan", plan_text(plan.plan));
  out += bytes_of_linears(plan);
  row("memory", fmt::format("{} of weights, {} of KV cache for each token", format_bytes(s.weight_bytes),
                            format_bytes(s.kv_bytes_per_token)));
  row("decode", fmt::format("reads {} for each token", format_bytes(s.decode_bytes_per_token)));
  for (const std::string& n : s.notes) row("note", n);
  for (const std::string& n : source.quant.warnings) row("warning", n);
  return out;
}

std::string tensors_text(const TensorSource& source) {
  std::string out;
  for (const TensorInfo& t : source.tensors()) {
    out += fmt::format("  {:<56} {:<16} {:<7} {:>10}\n", t.name, t.shape.text(), dtype_name(t), format_bytes(t.bytes));
  }
  return out;
}

Json linear_json(const LinearTask& t) {
  return {{"name", t.module},
          {"shape", {t.facts.n, t.facts.k}},
          {"stored", t.facts.weight == nullptr ? "" : dtype_name(*t.facts.weight)},
          {"weights", name_of(t.plan.weights)},
          {"activations", name_of(t.plan.activations)},
          {"kernel", t.kernel->name},
          {"rounded_at_load", !t.stored_as_planned},
          {"bytes", t.packed_bytes}};
}

Json fit_json(const MemoryFit& fit) {
  return {{"context", fit.context},      {"batch", fit.batch},
          {"weight_bytes", fit.weights}, {"loading_bytes", fit.loading},
          {"kv_bytes", fit.kv},          {"work_bytes", fit.work},
          {"peak_bytes", fit.peak()},    {"available_bytes", fit.available},
          {"fits", fit.fits()}};
}

Json model_json(const ModelSource& source, const LoadPlan& plan) {
  const ModelConfig& c = plan.config;
  const ModelSummary s = summarize(source, plan);
  Json tensors = Json::array();
  for (const TensorInfo& t : source.tensors->tensors()) {
    tensors.push_back({{"name", t.name}, {"dtype", dtype_name(t)}, {"shape", t.shape.dims}, {"bytes", t.bytes}});
  }
  Json linears = Json::array();
  for (const LayerTask& l : plan.layers) {
    for (const LinearTask* t : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) linears.push_back(linear_json(*t));
  }
  linears.push_back(linear_json(plan.head));
  return {{"model", s.path},
          {"source", source.tensors->describe()},
          {"architecture", c.architecture},
          {"parameters", s.parameters},
          {"layers", c.layers},
          {"hidden", c.hidden},
          {"intermediate", c.intermediate},
          {"heads", c.heads},
          {"kv_heads", c.kv_heads},
          {"head_dim", c.head_dim},
          {"vocab", c.vocab},
          {"context", c.context},
          {"rope", name_of(c.rope.kind)},
          {"tied_head", plan.tied_head},
          {"quantisation", source.quant.algorithm},
          {"plan", Json::parse(plan_to_json(plan.plan))},
          {"kernels", s.kernels},
          {"memory",
           {{"weight_bytes", s.weight_bytes},
            {"kv_bytes_per_token", s.kv_bytes_per_token},
            {"decode_bytes_per_token", s.decode_bytes_per_token}}},
          {"notes", s.notes},
          {"linears", linears},
          {"tensors", tensors}};
}

Result<LoadPlan> plan_of(const ModelSource& source, const ModelOptions& options) {
  HB_ASSIGN(const LoadOptions load, load_options(options));
  HB_ASSIGN(const Isa isa, choose_isa(load.kernels));
  return make_load_plan(source, load.plan, isa, load.kv);
}

std::string devices_text() {
  const auto isa = choose_isa("");
  std::string text = fmt::format("cpu: {}, {} threads\n  runs the kernels {}\n", cpu_model_name(),
                                 default_thread_count(), isa.ok() ? isa_name(*isa) : "none");
  const auto cuda = cuda_devices_text();
  if (!cuda.ok()) return text + "cuda: " + cuda.status().message() + "\n";
  return text + (cuda->empty() ? "cuda: no device is there\n" : *cuda);
}

int run(const InspectOptions& options) {
  if (options.devices) {
    const auto text = devices_text();
    return write_out(text) ? kDone : fail_output();
  }
  if (options.kernels_table) return write_out(registry_text()) ? kDone : fail_output();
  const auto path = model_path(options.model.model);
  if (!path.ok()) return fail(path.status());
  const auto source = open_model_source(*path);
  if (!source.ok()) return fail(source.status());
  const auto plan = plan_of(*source, options.model);
  if (!plan.ok()) return fail(plan.status());
  int64_t context = 0, batch = 1;
  if (const Status s = read_size(options.model.ctx, "--ctx", context); !s.ok()) return fail(s);
  if (const Status s = read_size(options.batch, "--batch", batch); !s.ok()) return fail(s);
  if (batch < 1 || batch > 4096) return fail(fmt::format("--batch is {}, expected 1 to 4096", batch));
  const auto fit = predict_memory(*plan, context, static_cast<int>(batch), options.model.threads);
  if (options.fit && !fit.ok()) return fail(fit.status());

  std::string text;
  if (options.json) {
    Json out = model_json(*source, *plan);
    if (options.fit) out["fit"] = fit_json(*fit);
    text = json_text(out);
  } else {
    text = model_text(*source, *plan);
    if (options.tensors) text += tensors_text(*source->tensors);
    if (options.fit) text += memory_fit_text(*fit);
  }
  if (!write_out(text)) return fail_output();
  return options.fit && !fit->fits() ? kFailed : kDone;
}

}  // namespace

Command add_inspect(CLI::App& app) {
  auto options = std::make_shared<InspectOptions>();
  Flags flags(app);
  add_model_argument(flags, options->model);
  add_load_flags(flags, options->model, "--use-kernels");
  flags.flag("--fit", options->fit, "Predict the memory for --ctx and --batch; exit code 1 if it does not fit");
  add_context_flag(flags, options->model);
  flags.option("--batch", options->batch, "With --fit: sequences at once")->capture_default_str();
  flags.flag("--tensors", options->tensors, "List every stored tensor");
  flags.flag_as("--kernels", options->kernels_table, "List the implementations of every operation and which run here",
                "HALFBYTE_INSPECT_KERNELS");
  flags.flag("--devices", options->devices, "List the CPU and the CUDA devices, what they would run, and why");
  flags.flag("--json", options->json, "One JSON object instead of text");
  return [options] { return run(*options); };
}

}  // namespace halfbyte::tools
