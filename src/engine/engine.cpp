#include "halfbyte/engine.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "base/memory_info.h"
#include "base/quote.h"
#include "engine/checks.h"
#include "engine/cuda_memory.h"
#include "engine/cuda_supported.h"
#include "engine/inbox.h"
#include "engine/runner.h"
#include "engine/scheduler.h"
#include "model/model_impl.h"

namespace halfbyte {

struct Engine::Impl {
  Impl(std::shared_ptr<const Model> m, const EngineOptions& o, std::unique_ptr<Runner> r, int64_t pages)
      : model(std::move(m)),
        options(o),
        runner(std::move(r)),
        inbox(o.max_waiting),
        blocks(pages, o.page_tokens),
        scheduler({o.max_batch, o.prefill_chunk}, blocks) {
    publish_metrics();
  }

  Result<std::vector<TokenEvent>> step();
  void take_inbox(std::vector<TokenEvent>& events);
  void count(const BatchPlan& plan);
  void publish_metrics();
  Result<ScoreResult> score(std::span<const int32_t> tokens, const ScoreOptions& score_options);

  const std::shared_ptr<const Model> model;
  const EngineOptions options;  // context and kv_tokens resolved
  const std::unique_ptr<Runner> runner;
  std::atomic<uint64_t> next_id{1};
  Inbox inbox;
  // Owned by the thread that steps:
  BlockManager blocks;
  Scheduler scheduler;
  ActivationTap tap;
  LogitsTap logits_tap;
  InboxContents arrivals;
  EngineMetrics counters;
  // What metrics() hands out.
  mutable std::mutex metrics_mutex;
  EngineMetrics metrics;
};

// The step. What runs: scheduler.h. How it runs: runner.h.
Result<std::vector<TokenEvent>> Engine::Impl::step() {
  std::vector<TokenEvent> events;
  take_inbox(events);
  const BatchPlan& plan = scheduler.next();
  if (!plan.empty()) {
    const auto tokens = runner->step(plan, logits_tap);
    if (tokens.ok()) {
      scheduler.accept(plan, *tokens, events);
      count(plan);
    } else {
      scheduler.fail(plan, tokens.status(), events);
    }
  }
  publish_metrics();
  return events;
}

void Engine::Impl::take_inbox(std::vector<TokenEvent>& events) {
  inbox.take(arrivals);
  for (std::unique_ptr<Request>& request : arrivals.requests) scheduler.add(std::move(request));
  for (const ForcedTokens& forced : arrivals.forced) scheduler.force(forced.request, forced.tokens);
  for (const uint64_t id : arrivals.cancellations) {
    const std::unique_ptr<Request> request = scheduler.remove(id);
    if (request == nullptr) continue;
    TokenEvent event;
    event.request = id;
    event.position = request->length();
    event.finish = FinishReason::kCancelled;
    events.push_back(std::move(event));
  }
  arrivals.clear();
}

void Engine::Impl::count(const BatchPlan& plan) {
  counters.steps += 1;
  for (const BatchSegment& segment : plan.segments)
    if (segment.role == RowRole::kPrompt) counters.prompt_tokens += static_cast<uint64_t>(segment.rows);
  counters.generated_tokens += static_cast<uint64_t>(plan.sampled);
}

void Engine::Impl::publish_metrics() {
  const RunnerCounts done = runner->counts();
  counters.steps_ahead = done.ahead;
  counters.steps_ahead_unused = done.ahead_unused;
  counters.device_waits = done.stream_waits;
  counters.running = scheduler.running();
  counters.preemptions = scheduler.preemptions();
  counters.context = options.context;
  counters.kv_tokens_total = blocks.total_pages() * blocks.page_tokens();
  counters.kv_tokens_used = counters.kv_tokens_total - blocks.free_pages() * blocks.page_tokens();
  {
    const std::lock_guard lock(metrics_mutex);
    metrics = counters;
  }
  // Last, so that a request on its way from waiting to running is never missing from both.
  inbox.set_waiting(scheduler.waiting());
}

Result<ScoreResult> Engine::Impl::score(std::span<const int32_t> tokens, const ScoreOptions& score_options) {
  HB_TRY(check_tokens(tokens, model->config().vocab));
  const auto count = static_cast<int64_t>(tokens.size());
  if (count < 2)
    return invalid_argument("a sequence of " + std::to_string(count) + " tokens to score, expected at least 2");
  if (count > options.context)
    return resource_exhausted("a sequence of " + std::to_string(count) + " tokens to score, the context is " +
                              std::to_string(options.context));
  BlockTable pages;
  if (!blocks.extend(pages, count - 1))
    return resource_exhausted("scoring " + std::to_string(count) +
                              " tokens needs more KV cache than running requests leave (" +
                              std::to_string(blocks.free_pages() * blocks.page_tokens()) + " tokens)");
  ScoreResult out;
  if (score_options.logits) {
    const int64_t kept = count - 1 - std::clamp<int64_t>(score_options.logits_from, 0, count - 1);
    out.logits.reserve(static_cast<size_t>(kept * model->config().vocab));
  }
  Status status;
  for (int64_t position = 0; position < count - 1 && status.ok();) {
    // Rows of one role at a time.
    const int64_t prompt = score_options.prompt_tokens;
    const int64_t end = position < prompt ? std::min(prompt, count - 1) : count - 1;
    const int64_t rows = std::min(options.prefill_chunk, end - position);
    status = runner->score(tokens, position, rows, pages, score_options, tap, out);
    position += rows;
  }
  blocks.release(pages);
  if (!status.ok()) return status;
  return out;
}

const char* finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone: return "none";
    case FinishReason::kStop: return "stop";
    case FinishReason::kLength: return "length";
    case FinishReason::kLoop: return "loop";
    case FinishReason::kCancelled: return "cancelled";
    case FinishReason::kError: return "error";
  }
  return "?";
}

namespace {

Result<ResolvedOptions> resolve_on_cuda(const Model::Impl& model, const EngineOptions& options) {
  HB_ASSIGN(const CudaMemory memory, cuda_memory());
  // Before memory is asked for: what cannot run is not to be told as a want of it.
  HB_TRY(check_cuda_model(model.weights, model.plan.kv));
  const CudaModelShape shape = cuda_model_shape(model.config, model.plan, model.weights, memory.wgmma);
  HB_ASSIGN(const uint64_t available, cuda_memory_beside_weights(memory, shape));
  return resolve_options(model.config, options, available,
                         [&](const RunnerLimits& limits) { return cuda_runner_footprint(shape, limits); });
}

}  // namespace

Engine::Engine(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Engine::~Engine() = default;

Result<std::unique_ptr<Engine>> Engine::create(std::shared_ptr<const Model> model, const EngineOptions& options) {
  const bool cuda = options.device == "cuda";
  if (!cuda && options.device != "cpu")
    return invalid_argument("the engine's device is " + quote(options.device) + ", expected cpu or cuda");
  if (cuda && options.stage_times)
    return unsupported("stage_times on a CUDA device, whose step is one graph; expected false");
  HB_ASSIGN(const ResolvedOptions resolved, cuda ? resolve_on_cuda(model->impl(), options)
                                                 : resolve_options(model->impl(), options, available_memory_bytes()));
  HB_ASSIGN(std::unique_ptr<Runner> runner,
            cuda ? make_cuda_runner(model, resolved.limits) : make_cpu_runner(model, resolved.limits));
  auto impl = std::make_unique<Impl>(std::move(model), resolved.options, std::move(runner), resolved.limits.pages);
  return std::unique_ptr<Engine>(new Engine(std::move(impl)));
}

Result<uint64_t> Engine::submit(GenerateRequest request) {
  const uint64_t id = impl_->next_id.fetch_add(1, std::memory_order_relaxed);
  HB_ASSIGN(std::unique_ptr<Request> made,
            make_request(std::move(request), id, impl_->model->config().vocab, impl_->options.context));
  HB_TRY(impl_->inbox.submit(std::move(made)));
  return id;
}

void Engine::cancel(uint64_t request) {
  impl_->inbox.cancel(request);
}
Status Engine::force(uint64_t request, std::vector<int32_t> tokens) {
  HB_TRY(check_tokens(tokens, impl_->model->config().vocab).with_context("forced tokens"));
  impl_->inbox.force({request, std::move(tokens)});
  return {};
}

Result<std::vector<TokenEvent>> Engine::step() {
  return impl_->step();
}

bool Engine::busy() const {
  const std::lock_guard lock(impl_->metrics_mutex);
  return impl_->metrics.running > 0 || impl_->inbox.waiting() > 0;
}

Result<ScoreResult> Engine::score(std::span<const int32_t> tokens, const ScoreOptions& options) {
  return impl_->score(tokens, options);
}

void Engine::set_tap(ActivationTap tap) {
  impl_->tap = std::move(tap);
}
void Engine::set_logits_tap(LogitsTap tap) {
  impl_->logits_tap = std::move(tap);
}

std::vector<StageTime> Engine::stage_times() const {
  return impl_->runner->stage_times();
}
EngineMetrics Engine::metrics() const {
  const std::lock_guard lock(impl_->metrics_mutex);
  EngineMetrics out = impl_->metrics;
  out.waiting = impl_->inbox.waiting();
  return out;
}

const Model& Engine::model() const {
  return *impl_->model;
}

}  // namespace halfbyte
