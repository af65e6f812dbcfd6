// Carries out a BatchPlan on one kind of machine: forward pass and sampling. The scheduler never sees memory or
// arithmetic, a runner never sees policy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "decode/sampler.h"
#include "engine/batch_plan.h"
#include "halfbyte/engine.h"
#include "halfbyte/model.h"
#include "model/facts.h"

namespace halfbyte {

struct RunnerLimits {
  int64_t max_batch = 0;      // sequences in one step
  int64_t prefill_chunk = 0;  // prompt rows in one step
  int64_t pages = 0;          // of the KV cache
  int64_t page_tokens = 0;
  int threads = 0;
  bool stage_times = false;
  bool run_ahead = true;  // on a CUDA device
};

// What a runner has done beside its plans; EngineMetrics says what the numbers mean.
struct RunnerCounts {
  uint64_t ahead = 0, ahead_unused = 0, stream_waits = 0;
};

// Thread-compatible: owned by the thread that steps the engine.
class Runner {
 public:
  virtual ~Runner() = default;

  // Saves, restores, runs, samples. One token for each sampling segment of the plan, in order; valid until the next
  // call. A request that fails alone gets its `failure` set, and its token means nothing. A Status: none of the plan's requests
  // can go on. `tap` may be empty.
  virtual Result<std::span<const SampledToken>> step(const BatchPlan& plan, const LogitsTap& tap) = 0;

  // Appends to `out` the scores of tokens[position + 1 .. position + rows + 1) given what stands before each of them.
  // Earlier positions of `tokens` have been run into `pages` already. The rows are all prompt rows or all decode rows.
  virtual Status score(std::span<const int32_t> tokens, int64_t position, int64_t rows, std::span<const int32_t> pages,
                       const ScoreOptions& options, const ActivationTap& tap, ScoreResult& out) = 0;

  // Empty where RunnerLimits::stage_times did not ask for it.
  virtual std::vector<StageTime> stage_times() const { return {}; }
  virtual RunnerCounts counts() const { return {}; }
};

Result<std::unique_ptr<Runner>> make_cpu_runner(std::shared_ptr<const Model> model, const RunnerLimits& limits);

// On CUDA device 0. The model must hold its weights in their normal form (loaded with kernels "ref"); it keeps them, the
// device gets its own packed copy. kUnsupported in a build without CUDA, without a device, or for formats that its
// kernels do not have.
Result<std::unique_ptr<Runner>> make_cuda_runner(std::shared_ptr<const Model> model, const RunnerLimits& limits);

// Memory that a runner will take beside the weights: the KV cache when it is full, and work space.
struct RunnerFootprint {
  uint64_t kv = 0;
  uint64_t work = 0;
  uint64_t total() const { return kv + work; }
};
RunnerFootprint cpu_runner_footprint(const ModelFacts& model, const RunnerLimits& limits);

}  // namespace halfbyte
