// halfbyte inspect: what a model is, without loading it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/cpu_features.h"
#include "base/cpu_topology.h"
#include "base/progress.h"
#include "base/quote.h"
#include "base/size_text.h"
#include "compare_models.h"
#include "engine/cuda_api.h"
#include "json_text.h"
#include "kernels/registry.h"
#include "memory_fit.h"
#include "model/model_build.h"
#include "model/synthetic.h"
#include "model_options.h"
#include "provenance.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

struct InspectOptions {
  ModelOptions model;
  std::string other;  // the model to compare with
  std::string batch = "1";
  bool fit = false, tensors = false, kernels_table = false, devices = false, table = false, measure = false,
       json = false;
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
    out += fmt::format("  {:<10} {}, {} by {}\n", "", counted(static_cast<uint64_t>(use.first), "linear"),
                       format_bytes(use.second), name);
  }
  return out;
}

// "ModelOpt NVFP4 by modelopt 0.37.0".
std::string quantised_text(const QuantConfig& quant) {
  std::string text = quant.scheme;
  if (!quant.algorithm.empty() && quant.algorithm != quant.scheme) text += " " + quote(quant.algorithm);
  return text + (quant.producer.empty() ? "" : " by " + quote(quant.producer)) + ", said by " + quant.file;
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
  row("shape", fmt::format("{}: {}, hidden {}, MLP {}, {} of {}, {}, vocabulary {}", c.architecture,
                           counted(c.layers, "layer"), c.hidden, c.intermediate, counted(c.heads, "head"), c.head_dim,
                           counted(c.kv_heads, "KV head"), c.vocab));
  row("parameters", fmt::format("{:.1f} M{}", static_cast<double>(s.parameters) / 1e6,
                                plan.tied_head ? ", head tied to the embedding" : ""));
  row("context", fmt::format("{} tokens, RoPE {}", c.context, rope_text(c.rope)));
  if (source.quant.quantised) row("quantised", quantised_text(source.quant));
  if (source.quant.quantised || stored_formats(plan).front().first.starts_with("NVFP4") ||
      stored_formats(plan).front().first.starts_with("MXFP4")) {
    for (const auto& [format, count] : stored_formats(plan))
      row("", fmt::format("{}: {}", counted(static_cast<uint64_t>(count), "linear"), format));
  }
  if (const std::string cache = kv_cache_text(source, plan); !cache.empty()) row("KV cache", cache);
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
  // Loading notes the warnings of the description, too.
  const std::vector<std::string>& warnings = source.quant.warnings;
  for (const std::string& n : s.notes)
    row(std::find(warnings.begin(), warnings.end(), n) == warnings.end() ? "note" : "warning", n);
  for (const std::string& n : doubts(source, plan)) row("warning", n);
  return out;
}

std::string tensors_text(const TensorSource& source, const LoadPlan& plan) {
  const auto roles = tensor_roles(plan);
  std::string out;
  for (const TensorInfo& t : source.tensors()) {
    const auto role = roles.find(t.name);
    out += fmt::format("  {:<56} {:<16} {:<7} {:>10}  {}\n", t.name, t.shape.text(), dtype_name(t),
                       format_bytes(t.bytes), role == roles.end() ? "not used by this plan" : role->second);
  }
  return out;
}

Json linear_json(const LinearTask& t) {
  return {{"name", t.module},
          {"shape", {t.facts.n, t.facts.k}},
          {"stored", t.facts.weight == nullptr ? "" : dtype_name(*t.facts.weight)},
          {"format", describe(t.facts)},
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
  const auto roles = tensor_roles(plan);
  Json tensors = Json::array();
  for (const TensorInfo& t : source.tensors->tensors()) {
    const auto role = roles.find(t.name);
    tensors.push_back({{"name", t.name},
                       {"dtype", dtype_name(t)},
                       {"shape", t.shape.dims},
                       {"bytes", t.bytes},
                       {"role", role == roles.end() ? "" : role->second}});
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
          {"quantised_by", source.quant.scheme},
          {"kv_cache", source.quant.kv_cache},
          {"plan", Json::parse(plan_to_json(plan.plan))},
          {"kernels", s.kernels},
          {"memory",
           {{"weight_bytes", s.weight_bytes},
            {"kv_bytes_per_token", s.kv_bytes_per_token},
            {"decode_bytes_per_token", s.decode_bytes_per_token}}},
          {"notes", s.notes},
          {"warnings", doubts(source, plan)},
          {"linears", linears},
          {"tensors", tensors}};
}

Result<LoadPlan> plan_of(const ModelSource& source, const ModelOptions& options) {
  HB_ASSIGN(const LoadOptions load, load_options(options));
  HB_ASSIGN(const Isa isa, choose_isa(load.kernels));
  return make_load_plan(source, load.plan, isa, load.kv);
}

Json kernels_json() {
  Json out = Json::array();
  for (const LinearKernel& k : all_linear_kernels())
    out.push_back({{"name", k.name},
                   {"isa", isa_name(k.isa)},
                   {"runs_here", isa_runs_here(k.isa)},
                   {"rows_a_tile", k.row_tile},
                   {"tokens_a_pass", k.max_rows},
                   {"prompt_only", k.prompt_only}});
  return {{"kernels", out}};
}

Json cuda_device_json(const CudaDeviceEntry& d, bool table) {
  Json out = {{"index", d.index},
              {"used", d.used},
              {"name", d.name},
              {"compute_capability", d.compute},
              {"multiprocessors", d.multiprocessors},
              {"memory_bytes", d.memory_bytes},
              {"l2_bytes", d.l2_bytes},
              {"shared_bytes_a_block", d.shared_bytes},
              {"driver", d.driver}};
  if (!d.unusable.empty()) {
    out["not_used"] = d.unusable;
    return out;
  }
  out["runs"] = d.runs;
  out["linears"] = d.linears;
  if (!table) return out;
  out["times"] = Json::array();
  for (const cuda::LinearTimes& t : d.times) {
    Json line = {{"n", t.n}, {"k", t.k}, {"rows", t.rows}};
    for (size_t i = 0; i < t.us.size(); ++i)
      if (t.us[i] > 0)
        line[std::string(cuda::linear_kernel_name(static_cast<cuda::LinearKernel>(i))) + "_us"] = t.us[i];
    out["times"].push_back(std::move(line));
  }
  return out;
}

// {"devices": [...]}, with "note" where there are none.
Json cuda_json(bool table) {
  const auto devices = cuda_device_entries();
  if (!devices.ok()) return {{"devices", Json::array()}, {"note", devices.status().message()}};
  Json list = Json::array();
  for (const CudaDeviceEntry& d : *devices) list.push_back(cuda_device_json(d, table));
  Json out = {{"devices", list}};
  if (devices->empty()) out["note"] = "no device is there";
  return out;
}

// `cpu_kernels`: those that are forced; "": the best here.
Json devices_json(bool table, const std::string& cpu_kernels) {
  const auto isa = choose_isa(cpu_kernels);
  return {{"cpu",
           {{"name", cpu_model_name()},
            {"threads", default_thread_count()},
            {"kernels", isa.ok() ? isa_name(*isa) : "none"}}},
          {"cuda", cuda_json(table)}};
}

std::string devices_text(bool table, const std::string& cpu_kernels) {
  const auto isa = choose_isa(cpu_kernels);
  std::string text =
      fmt::format("cpu: {}, {}\n  runs the kernels {}\n", cpu_model_name(),
                  counted(static_cast<uint64_t>(default_thread_count()), "thread"), isa.ok() ? isa_name(*isa) : "none");
  const auto cuda = cuda_devices_text(table);
  if (!cuda.ok()) return text + "cuda: " + cuda.status().message() + "\n";
  return text + (cuda->empty() ? "cuda: no device is there\n" : *cuda);
}

Json difference_json(const TensorDifference& d) {
  Json out = {{"name", d.name}, {"stored_a", d.stored_a}, {"stored_b", d.stored_b}};
  if (!d.compared()) {
    out["note"] = d.note;
    return out;
  }
  out["equal"] = std::isinf(d.snr_db) && d.snr_db > 0;
  out["snr_db"] = std::isinf(d.snr_db) ? Json(nullptr) : Json(d.snr_db);
  out["largest"] = d.largest;
  out["nan_a"] = d.nan_a;
  out["nan_b"] = d.nan_b;
  return out;
}

// inspect A B. Like diff: 0 for equal models, 1 for different ones.
int run_comparison(const InspectOptions& options, const ModelSource& first) {
  const auto path = model_path(options.other);
  if (!path.ok()) return fail(path.status());
  const auto second = open_model_source(*path);
  if (!second.ok()) return fail(second.status());
  ThreadPool pool(options.model.threads > 0 ? options.model.threads : default_thread_count());
  ProgressBar bar("comparing");
  const auto differences =
      compare_models(first, *second, pool, [&](size_t done, size_t total) { bar.share(done, total); });
  bar.finish();
  if (!differences.ok()) return fail(differences.status());
  std::string text;
  if (options.json) {
    Json list = Json::array();
    for (const TensorDifference& d : *differences) list.push_back(difference_json(d));
    text = json_text(
        Json{{"model", first.path}, {"other", second->path}, {"equal", all_equal(*differences)}, {"tensors", list}});
  } else {
    text = differences_text(*differences);
  }
  if (!write_out(text)) return fail_output();
  return all_equal(*differences) ? kDone : kFailed;
}

// What each form would pass over in silence.
Status check_form(const InspectOptions& options, const CLI::App& app) {
  const std::initializer_list<const char*> of_models = {"MODEL", "OTHER", "--fit",   "--tensors",     "--plan",
                                                        "--kv",  "--ctx", "--batch", "--use-kernels", "--threads"};
  if (options.devices && options.kernels_table) return invalid_argument("--devices and --kernels: ask for one of them");
  if (options.measure && !options.devices) return invalid_argument("--measure goes with --devices");
  if (options.table && !options.devices) return invalid_argument("--table goes with --devices");
  if (options.measure)
    return refuse_unused(
        app, "with --measure",
        {"OTHER", "--fit", "--tensors", "--plan", "--kv", "--ctx", "--batch", "--use-kernels", "--threads", "--table"});
  if (options.devices)
    return refuse_unused(app, "with --devices",
                         {"MODEL", "OTHER", "--fit", "--tensors", "--plan", "--kv", "--ctx", "--batch", "--threads"});
  if (options.kernels_table)
    return refuse_unused(app, "with --kernels, which lists them (--use-kernels forces some)", of_models);
  if (!options.other.empty())
    return refuse_unused(app, "with two models",
                         {"--fit", "--tensors", "--plan", "--kv", "--ctx", "--batch", "--use-kernels"});
  if (!options.fit) return refuse_unused(app, "without --fit", {"--ctx", "--batch"});
  return {};
}

// With the kernels that are forced, by the variable, too: they run in every command.
int run_devices(const InspectOptions& options) {
  std::string kernels = options.model.kernels;
  if (force_cuda_kernels(kernels).ok()) kernels.clear();  // a CUDA device's
  const auto text =
      options.json ? json_text(devices_json(options.table, kernels)) : devices_text(options.table, kernels);
  return write_out(text) ? kDone : fail_output();
}

// The model whose linears --measure times: MODEL, or three that are often run.
Result<std::vector<ModelConfig>> measured_models(const std::string& model) {
  std::vector<ModelConfig> out;
  const auto add = [&](const ModelSource& source) -> Status {
    HB_ASSIGN(ModelConfig config, make_model_config(source.config, source.generation));
    out.push_back(std::move(config));
    return {};
  };
  if (!model.empty()) {
    HB_ASSIGN(const ModelSource source, open_model_source(model));
    HB_TRY(add(source));
    return out;
  }
  for (const char* shape : {"qwen3-8b", "qwen3-14b", "qwen3-32b"}) {
    HB_ASSIGN(const ModelSource source, synthetic_source(shape));
    HB_TRY(add(source));
  }
  return out;
}

// With --json the devices as --devices --table --json prints them, the new times among them.
int run_measure(const std::string& model, bool json) {
  const auto models = measured_models(model);
  if (!models.ok()) return fail(models.status());
  const auto text = measure_cuda_linears(*models);
  if (!text.ok()) return fail(text.status());
  return write_out(json ? json_text(devices_json(/*table=*/true, /*cpu_kernels=*/"")) : *text) ? kDone : fail_output();
}

int run(const InspectOptions& options, const CLI::App& app) {
  if (const Status s = check_form(options, app); !s.ok()) return fail(s);
  if (options.measure) return run_measure(options.model.model, options.json);
  if (options.devices) return run_devices(options);
  if (options.kernels_table)
    return write_out(options.json ? json_text(kernels_json()) : registry_text()) ? kDone : fail_output();
  const auto path = model_path(options.model.model);
  if (!path.ok()) return fail(path.status());
  const auto source = open_model_source(*path);
  if (!source.ok()) return fail(source.status());
  if (!options.other.empty()) return run_comparison(options, *source);
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
    if (options.tensors) text += tensors_text(*source->tensors, *plan);
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
  flags.option_as("OTHER", options->other, "Compare with this model, tensor by tensor; exit code 1 if they differ",
                  "HALFBYTE_INSPECT_OTHER");
  add_load_flags(flags, options->model, "--use-kernels");
  flags.flag("--fit", options->fit, "Predict the memory for --ctx and --batch; exit code 1 if it does not fit");
  add_context_flag(flags, options->model);
  flags.option("--batch", options->batch, "With --fit: sequences at once")->capture_default_str();
  flags.flag("--tensors", options->tensors, "List every stored tensor");
  flags.flag_as("--kernels", options->kernels_table, "List the implementations of every operation and which run here",
                "HALFBYTE_INSPECT_KERNELS");
  flags.flag("--devices", options->devices, "List the CPU and the CUDA devices, what they would run, and why");
  flags.flag("--table", options->table, "With --devices: the measured times that choose a CUDA device's linears");
  flags.flag("--measure", options->measure,
             "With --devices: measure those times for MODEL's linears (else of three known shapes) and keep them");
  flags.flag("--json", options->json, "One JSON object instead of text");
  return [options, &app] { return run(*options, app); };
}

}  // namespace halfbyte::tools
