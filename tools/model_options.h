// Finding and loading the model: the flags that run, inspect and bench share.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "command.h"
#include "halfbyte/chat.h"
#include "halfbyte/engine.h"
#include "halfbyte/model.h"

namespace halfbyte::tools {

struct ModelOptions {
  std::string model, plan, kv, kernels, ctx;
  std::string device;  // "", "cpu", "cuda", "auto"
  int threads = 0;
  std::string kernels_flag = "--kernels";  // what it is called here
  bool has_device_flag = false;
  bool quiet = false;  // no notes
  std::string prefill_chunk;
};

inline constexpr char kModelHelp[] =
    "A Hugging Face folder or a .gguf file (default: models/halfbyte-reasoner beside this binary, else the model of "
    "scripts/get-model smollm2)";
void add_model_argument(Flags& flags, ModelOptions& options);
// --plan, --kv, --kernels, --threads. `kernels_flag` is what the second is called here; its variable is always HALFBYTE_KERNELS.
void add_load_flags(Flags& flags, ModelOptions& options, const std::string& kernels_flag = "--kernels");
void add_context_flag(Flags& flags, ModelOptions& options);
// --prefill-chunk, of commands that have an engine read prompts. standard: what it is where nobody says.
void add_prefill_flag(Flags& flags, ModelOptions& options, const std::string& standard = "512");
// What the flag says, or the engine's default. kInvalidArgument: more than the device, "cpu" or "cuda", takes at once.
Result<int64_t> prefill_chunk_of(const ModelOptions& options, std::string_view device);

// The model that was named, or else the reasoner of this tree, or the one that scripts/get-model keeps in the user's cache;
// an error that says how to get one when there is none.
Result<std::string> model_path(const std::string& given);

// Why messages cannot become a prompt. Where the file holds no model at all (a vocabulary only), that is the reason.
Status check_template(const TextModel& text, const std::string& path);

void add_device_flag(Flags& flags, ModelOptions& options, const std::string& help);
// "cpu" or "cuda": what the flag means here. "auto" is a CUDA device where one can be used.
Result<std::string> chosen_device(const ModelOptions& options);

// Where a model runs, which its tokens depend on.
struct Place {
  std::string device;   // "cpu", "cuda"
  std::string name;     // the processor's or the device's
  std::string kernels;  // the CPU's, or ring, stages, portable
  std::string detail;   // of a device: the kernel of each operation
  std::string why_cpu;  // why --device auto took no CUDA device; "" where it was not asked
  // "cuda: NVIDIA H200", with the reason why it is the CPU.
  std::string device_text() const;
  std::string kernels_text() const;
};
// `model`: loaded with these options.
Result<Place> place_of(const ModelOptions& options, const Model& model);

// Plan, cache format, kernels and threads from the flags. For a CUDA device the weights stay in their normal form.
Result<LoadOptions> load_options(const ModelOptions& options);
// With a progress bar on a terminal; Ctrl-C gives kCancelled.
Result<std::shared_ptr<Model>> load_model(const std::string& path, const ModelOptions& options);
// An engine for `batch` requests at once.
Result<std::unique_ptr<Engine>> make_engine(std::shared_ptr<const Model> model, const ModelOptions& options, int batch,
                                            bool stage_times = false);
// The same for a model that load_model() gave for these options. With --device auto one that a CUDA device's kernels do not have is
// loaded again for the CPU, with a note; `options.device` is "cpu" then.
Result<std::unique_ptr<Engine>> open_engine(const std::string& path, ModelOptions& options,
                                            std::shared_ptr<Model>& model, int batch);

// "w4a16 (nvfp4 weights, bf16 activations, bf16 KV)".
std::string plan_text(const PrecisionPlan& plan);
// A few lines about a loaded model: format, plan, memory, context, device, kernels.
std::string model_table(const Model& model, int64_t context, const Place& place);

}  // namespace halfbyte::tools
