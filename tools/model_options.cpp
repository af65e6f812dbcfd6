#include "model_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "base/cpu_features.h"
#include "base/progress.h"
#include "base/quote.h"
#include "base/size_text.h"
#include "base/user_cache.h"
#include "engine/checks.h"
#include "engine/cuda_api.h"
#include "engine/cuda_limits.h"
#include "io/model_source.h"
#include "kernels/cuda/kernel_set.h"
#include "kernels/registry.h"

namespace halfbyte::tools {
namespace {

namespace fs = std::filesystem;

fs::path model_cache() {
  const fs::path cache = user_cache();
  return cache.empty() ? cache : cache / "models";
}

// smollm2*.gguf in the user's cache, whatever the case; the first by name.
std::string cached_model() {
  std::vector<std::string> found;
  std::error_code failure;
  for (fs::directory_iterator it(model_cache(), failure), end; !failure && it != end; it.increment(failure)) {
    std::string name = it->path().filename().string();
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (name.starts_with("smollm2") && name.ends_with(".gguf")) found.push_back(it->path().string());
  }
  return found.empty() ? "" : *std::min_element(found.begin(), found.end());
}

// models/halfbyte-reasoner of the tree that the binary was built in, or of the folder that it lies in.
std::string shipped_model() {
  std::error_code failure;
  fs::path folder = fs::read_symlink("/proc/self/exe", failure).parent_path();
  for (int levels = 0; !failure && levels < 4; ++levels, folder = folder.parent_path()) {
    const fs::path model = folder / "models" / "halfbyte-reasoner";
    if (fs::exists(model / "config.json", failure)) return model.string();
    failure.clear();
  }
  return "";
}

bool is_cuda_name(const std::string& kernels) {
  return !kernels.empty() && cuda::forced_kernels_named(kernels).ok();
}

// " (from HALFBYTE_KERNELS)" where nobody typed it.
std::string kernels_origin(const ModelOptions& options) {
  const char* variable = std::getenv("HALFBYTE_KERNELS");
  return variable != nullptr && options.kernels == variable ? " (from HALFBYTE_KERNELS)" : "";
}

// --device auto takes the CPU although a device is there: said once, however many models are loaded.
void note_unused_device() {
  static bool said = false;
  if (said) return;
  said = true;
  if (const std::string why = unusable_cuda_device(); !why.empty()) note("on the CPU: " + why);
}

// The CPU's names and the CUDA devices' have nothing in common.
Result<std::string> kernels_named(const std::string& name) {
  if (is_cuda_name(name)) return name;
  const Status cpu = choose_isa(name).status();
  if (cpu.code() == StatusCode::kInvalidArgument)
    return invalid_argument(cpu.message() + ", or of a CUDA device ring, stages, portable");
  HB_TRY(cpu);
  return name;
}

}  // namespace

void add_model_argument(Flags& flags, ModelOptions& options) {
  flags.option("MODEL", options.model, kModelHelp);
}

void add_load_flags(Flags& flags, ModelOptions& options, const std::string& kernels_flag) {
  flags
      .option("--plan", options.plan,
              "Number formats: " + fmt::format("{}", fmt::join(plan_preset_names(), ", ")) +
                  "; with changes: w4a16,kv=f32,layers.0.*:weights=bf16")
      ->check(readable(parse_plan));
  flags.option("--kv", options.kv, "Format of the KV cache, whatever the plan says: f32, bf16, fp8, nvfp4, e1m2")
      ->check(readable(parse_kv));
  options.kernels_flag = kernels_flag;
  flags
      .option_as(kernels_flag, options.kernels,
                 "Force an implementation: ref, avx2, avxvnni, avx512, amx; on a CUDA device ring, stages, portable "
                 "(default: the best here)",
                 "HALFBYTE_KERNELS")
      ->check(readable(kernels_named));
  flags.option("--threads", options.threads, "Threads (default: the physical cores this process may use)")
      ->check(whole_number(0, 4096));
}

void add_context_flag(Flags& flags, ModelOptions& options) {
  flags.option("--ctx", options.ctx,
               "Longest sequence in tokens, e.g. 4096 or 32K (default: the model's, or what fits)");
}

void add_prefill_flag(Flags& flags, ModelOptions& options, const std::string& standard) {
  const auto check = [](const std::string& text) -> Result<int64_t> {
    const auto chunk = parse_size(text, "");
    if (chunk.ok() && *chunk >= 1 && *chunk <= kMostPrefillChunk) return chunk;
    return invalid_argument(fmt::format("is {}, expected 1 to {}", quote(text), kMostPrefillChunk));
  };
  flags
      .option("--prefill-chunk", options.prefill_chunk,
              "Tokens of prompts that a step reads at most, e.g. 128 or 2K; changes times, not results (default: " +
                  standard + ")")
      ->check(readable(check));
}

Result<int64_t> prefill_chunk_of(const ModelOptions& options, std::string_view device) {
  int64_t chunk = EngineOptions{}.prefill_chunk;
  HB_TRY(read_size(options.prefill_chunk, "--prefill-chunk", chunk));
  if (device != "cuda" || chunk <= kMostPromptRows) return chunk;
  return invalid_argument(
      fmt::format("--prefill-chunk is {}, expected 1 to {} on a CUDA device", options.prefill_chunk, kMostPromptRows));
}

void add_device_flag(Flags& flags, ModelOptions& options, const std::string& help) {
  const auto check = [](const std::string& text) -> std::string {
    return text == "auto" || text == "cpu" || text == "cuda"
               ? ""
               : fmt::format("is {}, expected auto, cpu or cuda", quote(text));
  };
  options.has_device_flag = true;
  flags.option("--device", options.device, help)->capture_default_str()->check(CLI::Validator(check, ""));
}

Status check_template(const TextModel& text, const std::string& path) {
  if (text.template_status.ok()) return {};
  HB_TRY(open_model_source(path).status());
  return text.template_status;
}

Result<std::string> chosen_device(const ModelOptions& options) {
  const bool cuda_kernels = is_cuda_name(options.kernels);
  if (options.device.empty() || options.device == "cpu") {
    if (cuda_kernels)
      return invalid_argument(
          fmt::format("{} is {}{}, which CUDA devices have; {}", options.kernels_flag, quote(options.kernels),
                      kernels_origin(options),
                      options.has_device_flag
                          ? "choose --device cuda, or one of the CPU's: ref, avx2, avxvnni, avx512, amx"
                          : "this command looks at the CPU, choose one of its: ref, avx2, avxvnni, avx512, amx"));
    return std::string("cpu");
  }
  if (options.device == "auto" && !cuda_kernels)
    return std::string(options.kernels.empty() && cuda_usable().ok() ? "cuda" : "cpu");
  HB_TRY(force_cuda_kernels(options.kernels)
             .with_context(options.kernels_flag + kernels_origin(options) + " with a CUDA device"));
  HB_TRY(cuda_usable());
  return std::string("cuda");
}

Result<std::string> model_path(const std::string& given) {
  if (!given.empty()) return given;
  if (std::string path = shipped_model(); !path.empty()) return path;
  if (std::string path = cached_model(); !path.empty()) return path;
  const std::string looked = model_cache().empty() ? "the user's cache (HOME is not set)" : model_cache().string();
  return not_found(
      fmt::format("no MODEL was named, models/halfbyte-reasoner does not lie beside this binary, and there is none in "
                  "{}; get a small one with scripts/get-model smollm2, or name a "
                  "Hugging Face folder or a .gguf file",
                  looked));
}

Result<LoadOptions> load_options(const ModelOptions& options) {
  LoadOptions load;
  if (!options.plan.empty()) {
    HB_ASSIGN(load.plan, parse_plan(options.plan));
  }
  if (!options.kv.empty()) {
    HB_ASSIGN(load.kv, parse_kv(options.kv));
  }
  HB_ASSIGN(const std::string device, chosen_device(options));
  HB_TRY(prefill_chunk_of(options, device).status());  // before anything is loaded
  if (options.device == "auto" && device == "cpu" && options.kernels.empty() && !options.quiet) note_unused_device();
  load.kernels = device == "cuda" ? "ref" : options.kernels;
  load.threads = options.threads;
  return load;
}

Result<std::shared_ptr<Model>> load_model(const std::string& path, const ModelOptions& options) {
  HB_ASSIGN(LoadOptions load, load_options(options));
  ProgressBar bar("loading " + fs::path(path).filename().string());
  load.progress = [&](uint64_t done, uint64_t total) {
    bar.update(done, total);
    return true;
  };
  return Model::load(path, load);
}

Result<std::unique_ptr<Engine>> make_engine(std::shared_ptr<const Model> model, const ModelOptions& options, int batch,
                                            bool stage_times) {
  EngineOptions engine;
  engine.stage_times = stage_times;
  engine.max_batch = batch;
  engine.threads = options.threads;
  HB_ASSIGN(engine.device, chosen_device(options));
  HB_ASSIGN(engine.prefill_chunk, prefill_chunk_of(options, engine.device));
  HB_TRY(read_size(options.ctx, "--ctx", engine.context));
  if (engine.context > 0) engine.kv_tokens = engine.context * batch;
  return Engine::create(std::move(model), engine);
}

Result<std::unique_ptr<Engine>> open_engine(const std::string& path, ModelOptions& options,
                                            std::shared_ptr<Model>& model, int batch) {
  auto engine = make_engine(model, options, batch);
  const bool may_fall_back = options.device == "auto" && engine.status().code() == StatusCode::kUnsupported;
  if (!may_fall_back) return engine;
  HB_ASSIGN(const std::string device, chosen_device(options));
  if (device != "cuda" || is_cuda_name(options.kernels)) return engine;
  if (!options.quiet) note("on the CPU: " + engine.status().message());
  options.device = "cpu";
  model.reset();
  HB_ASSIGN(model, load_model(path, options));
  return make_engine(model, options, batch);
}

std::string Place::device_text() const {
  return fmt::format("{}: {}", device, name) + (why_cpu.empty() ? "" : fmt::format(" ({})", why_cpu));
}

std::string Place::kernels_text() const {
  return detail.empty() ? kernels : fmt::format("{} ({})", kernels, detail);
}

Result<Place> place_of(const ModelOptions& options, const Model& model) {
  HB_ASSIGN(const std::string device, chosen_device(options));
  if (device == "cuda") {
    HB_ASSIGN(const CudaPlace cuda, cuda_place());
    return Place{device, cuda.device, cuda.kernels, cuda.detail, ""};
  }
  Place place{device, cpu_model_name(), model.summary().kernels, "", ""};
  if (options.device != "auto") return place;
  // What was found; what to do about it is in the note, where something is there.
  const std::string why = cuda_usable().message();
  place.why_cpu = options.kernels.empty() ? why.substr(0, why.find("; "))
                                          : fmt::format("{} {}", options.kernels_flag, options.kernels);
  return place;
}

std::string plan_text(const PrecisionPlan& plan) {
  std::string text = fmt::format("{} ({} weights, {} activations, {} KV", plan.preset, name_of(plan.linear.weights),
                                 name_of(plan.linear.activations), name_of(plan.kv));
  if (!plan.overrides.empty()) text += ", " + counted(plan.overrides.size(), "override");
  return text + ")";
}

std::string model_table(const Model& model, int64_t context, const Place& place) {
  const ModelSummary& s = model.summary();
  std::string out;
  const auto row = [&](std::string_view name, const std::string& value) {
    out += fmt::format("  {:<9} {}\n", name, value);
  };
  row("model", fmt::format("{} ({}, {}, {:.1f} M parameters)", s.path, s.source, s.architecture,
                           static_cast<double>(s.parameters) / 1e6));
  row("plan", plan_text(model.plan()));
  row("weights", fmt::format("{} in memory, {} read for each token; loaded in {:.2f} s", format_bytes(s.weight_bytes),
                             format_bytes(s.decode_bytes_per_token), s.load_seconds));
  row("context", fmt::format("{} tokens, KV cache {}", context,
                             format_bytes(static_cast<uint64_t>(context) * s.kv_bytes_per_token)));
  row("device", place.device_text());
  row("kernels", place.kernels_text());
  for (const std::string& n : s.notes) row("note", n);
  return out;
}

}  // namespace halfbyte::tools
