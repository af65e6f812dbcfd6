// The engine: continuous batching over paged KV. One thread steps it; others submit and cancel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "halfbyte/generate.h"
#include "halfbyte/model.h"
#include "halfbyte/status.h"

namespace halfbyte {

struct EngineOptions {
  int max_batch = 16;           // requests running at once
  int64_t context = 0;          // tokens a request may reach; 0: the model's, or what fits in memory (metrics() says)
  int64_t kv_tokens = 0;        // capacity of the KV cache over all requests; 0: one request of the full context
  int64_t prefill_chunk = 512;  // prompt tokens a step, up to 65536; on a CUDA device 4096
  int64_t page_tokens = 32;     // a power of two
  int max_waiting = 1024;       // requests queued; one more is refused
  int threads = 0;              // 0: the physical cores this process may use; results do not depend on it
  bool stage_times = false;     // measure what Engine::stage_times() gives; on the CPU only
  bool run_ahead = true;  // on a CUDA device: begin a step before the tokens of the last one are here; the same tokens
  std::string device = "cpu";  // "cpu", or "cuda": device 0, for a model loaded with kernels "ref"
};

// Teacher-forced scores of a token sequence.
struct ScoreOptions {
  bool logits = false;      // keep the full logits (vocab floats a token)
  int64_t logits_from = 0;  // of this position and those behind it
  bool entropy = true;
  // This many tokens are a prompt; what follows runs as generated tokens do, so that its scores have the bits that
  // generation had (docs/numerics.md 3.5: with AMX the two differ). All of them by default, which is faster.
  int64_t prompt_tokens = INT64_MAX;
};
struct ScoreResult {
  // One entry a token but the first: log p(token[i+1] | token[0..i]), nats.
  std::vector<float> logprobs;
  std::vector<float> entropies;  // of the distribution that token[i+1] is drawn from
  std::vector<int32_t> argmax;
  std::vector<float> logits;  // [tokens - 1 - logits_from, vocab] if asked for
};

// Sees a linear's input rows (FP32, before quantisation) during score(): calibration. x is [rows, k].
using ActivationTap = std::function<void(const std::string& linear, std::span<const float> x, int64_t rows, int64_t k)>;

// Sees the raw logits [vocab] that step() draws a token from, before bias, penalties and temperature. `position`:
// number of tokens before the drawn one.
using LogitsTap = std::function<void(uint64_t request, int64_t position, std::span<const float> logits)>;

struct EngineMetrics {
  int64_t running = 0, waiting = 0;
  int64_t context = 0;  // tokens a request may reach
  int64_t kv_tokens_used = 0, kv_tokens_total = 0;
  uint64_t steps = 0, prompt_tokens = 0, generated_tokens = 0;
  uint64_t preemptions = 0;
  // On a CUDA device: steps that were on it before they were asked for, those that turned out to be another's and were given
  // up, and how often the host waited until the device had nothing left to do.
  uint64_t steps_ahead = 0, steps_ahead_unused = 0, device_waits = 0;
};

// Seconds that all steps and scores so far have spent on one kind of work: "linear", "attention", "head", ...
struct StageTime {
  std::string stage;
  double seconds = 0;
};

// submit, cancel, force and metrics are thread-safe; step, score, stage_times and the taps belong to one thread.
class Engine {
 public:
  // kInvalidArgument: an option out of its range, by name; kResourceExhausted: the KV cache and work space do not fit
  // (says what would); kUnsupported: the device is not there or lacks a kernel for the model's formats.
  static Result<std::unique_ptr<Engine>> create(std::shared_ptr<const Model> model, const EngineOptions& options = {});
  ~Engine();

  // The request's id. kInvalidArgument: empty prompt, token ids out of range, bad sampling values;
  // kResourceExhausted: longer than the context (says both numbers), queue full.
  Result<uint64_t> submit(GenerateRequest request);
  // Takes effect within one step. Unknown ids are ignored.
  void cancel(uint64_t request);
  // The request's next tokens are these, in place of drawn ones; then it goes on drawing. Nothing is read twice: keys and
  // values, penalties and a temperature policy go on as if the model had drawn them. Called between two steps it holds
  // from the next token on; called again it adds to what still waits. A stop token among them ends the request, as does
  // its limit. kInvalidArgument: token ids out of range. Unknown ids are ignored.
  Status force(uint64_t request, std::vector<int32_t> tokens);

  // One engine step: schedules, runs the model, samples, accepts. Returns what was generated, in request order.
  // With nothing to do it returns an empty vector at once. A request that fails ends with an event (kError) that says why: alone,
  // or, when the device failed, with all that ran in the step. After a fault of the device later requests end so, too.
  Result<std::vector<TokenEvent>> step();
  // True while requests wait or run.
  bool busy() const;  // thread-safe

  // Runs beside what is running, in free pages of the cache. kInvalidArgument: fewer than 2 tokens, ids out of range;
  // kResourceExhausted: longer than the context, or than the pages that are free; kInvalidData: a logit is not finite.
  Result<ScoreResult> score(std::span<const int32_t> tokens, const ScoreOptions& options = {});
  // An empty function takes the tap away.
  void set_tap(ActivationTap tap);
  void set_logits_tap(LogitsTap tap);

  EngineMetrics metrics() const;
  // Empty unless EngineOptions::stage_times asked for it.
  std::vector<StageTime> stage_times() const;
  const Model& model() const;

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte
