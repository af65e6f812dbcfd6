// A loaded model: weights packed for this machine's kernels, configuration and precision plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "halfbyte/plan.h"
#include "halfbyte/status.h"

namespace halfbyte {

struct ModelConfig;  // src/model/config.h
struct ModelSource;  // src/io/model_source.h

struct LoadOptions {
  // Empty: the folder's halfbyte_plan.json; else, for a quantised folder, the formats that it stores with BF16 inputs;
  // else w4a16 (docs/plans.md).
  std::optional<PrecisionPlan> plan;
  std::optional<KvKind> kv;  // replaces the plan's, whichever plan it is
  // "": the best this CPU runs; "ref", "avx2", "avxvnni", "avx512", "amx": forced, an error if it cannot run.
  std::string kernels;
  int threads = 0;  // 0: the physical cores this process may use
  // Called from the loading thread with bytes done and in total. Return false to stop (Status kCancelled).
  std::function<bool(uint64_t done, uint64_t total)> progress;
};

struct ModelSummary {
  std::string path;
  std::string source;        // "Hugging Face folder", "GGUF v3", "ModelOpt NVFP4 folder"
  std::string architecture;  // "llama", "qwen2", "qwen3"
  int64_t parameters = 0;
  int64_t context = 0;  // longest supported, tokens
  int64_t vocab = 0;
  uint64_t weight_bytes = 0;  // in memory
  uint64_t kv_bytes_per_token = 0;
  uint64_t decode_bytes_per_token = 0;  // weights a decode step reads
  std::string kernels;                  // the implementation chosen, e.g. "avx2"
  double load_seconds = 0;
  std::string calibrated_plan;  // the folder has calibrated values, of this other plan; empty: none, or they are used
  std::vector<std::string> notes;  // what loading had to decide and a user should know, one line each
};

// Thread-safe after load: immutable.
class Model {
 public:
  // `path`: a Hugging Face folder or a .gguf file. Errors name what was looked for and the next step. kNotFound: no
  // such file, tensor missing; kInvalidData: broken or contradictory files; kUnsupported: architectures and formats
  // that Halfbyte does not have; kInvalidArgument: a plan or option that does not fit the model; kResourceExhausted:
  // not enough memory, said with both numbers before anything is allocated.
  static Result<std::shared_ptr<Model>> load(const std::string& path, const LoadOptions& options = {});
  // A model of a well-known shape with random weights and no file, for measurements: "qwen2.5-1.5b", ... An unknown
  // name is kInvalidArgument and lists the known ones.
  static Result<std::shared_ptr<Model>> synthetic(const std::string& shape, const LoadOptions& options = {});
  // From an opened source (src/io/model_source.h).
  static Result<std::shared_ptr<Model>> from_source(const ModelSource& source, const LoadOptions& options = {});
  ~Model();

  const ModelConfig& config() const;
  const PrecisionPlan& plan() const;
  const ModelSummary& summary() const;

  struct Impl;  // src/model
  const Impl& impl() const { return *impl_; }

 private:
  Model();
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte
