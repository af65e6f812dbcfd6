#include "engine/checks.h"

#include <algorithm>
#include <bit>

#include "base/cpu_topology.h"
#include "base/quote.h"
#include "base/size_text.h"
#include "base/thread_pool.h"
#include "engine/cuda_limits.h"

namespace halfbyte {
namespace {

// A context below this is of no use: say that memory is short rather than shrink to it.
constexpr int64_t kLeastContext = 256;

Status check_range(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return {};
  return invalid_argument(std::string(name) + " is " + std::to_string(value) + ", expected " + std::to_string(low) +
                          " to " + std::to_string(high));
}

Status check_options(const EngineOptions& o, const ModelConfig& config) {
  HB_TRY(check_range("max_batch", o.max_batch, 1, 4096));
  HB_TRY(check_range("prefill_chunk", o.prefill_chunk, 1, kMostPrefillChunk));
  if (o.device == "cuda")
    HB_TRY(check_range("prefill_chunk", o.prefill_chunk, 1, kMostPromptRows).with_context("on a CUDA device"));
  HB_TRY(check_range("max_waiting", o.max_waiting, 1, 1 << 20));
  HB_TRY(check_range("threads", o.threads, 0, kMaxThreads));
  HB_TRY(check_range("page_tokens", o.page_tokens, 1, 4096));
  if (!std::has_single_bit(static_cast<uint64_t>(o.page_tokens)))
    return invalid_argument("page_tokens is " + std::to_string(o.page_tokens) + ", expected a power of two");
  HB_TRY(check_range("context", o.context, 0, config.context)
             .with_context("the model was made for " + std::to_string(config.context) + " tokens"));
  HB_TRY(check_range("kv_tokens", o.kv_tokens, 0, int64_t{1} << 40));
  if (o.kv_tokens > 0 && o.kv_tokens < o.context)
    return invalid_argument("kv_tokens is " + std::to_string(o.kv_tokens) + ", expected at least the context of " +
                            std::to_string(o.context) + ", so that one request fits");
  return {};
}

RunnerLimits runner_limits(const EngineOptions& o) {
  return {o.max_batch,   o.prefill_chunk, (o.kv_tokens + o.page_tokens - 1) / o.page_tokens, o.page_tokens, o.threads,
          o.stage_times, o.run_ahead};
}

// Work space grows with the cache, too, a little and in steps.
uint64_t pages_that_fit(const FootprintOf& footprint, RunnerLimits limits, uint64_t available) {
  const auto all = static_cast<uint64_t>(limits.pages);
  const auto total = [&](uint64_t pages) {
    limits.pages = static_cast<int64_t>(pages);
    return footprint(limits).total();
  };
  const uint64_t one = total(1);
  if (one > available) return 0;
  if (all == 1) return 1;
  uint64_t pages = 1 + (available - one) / std::max<uint64_t>(1, (total(all) - one) / (all - 1));
  while (pages > 1 && total(pages) > available) --pages;
  return pages;
}

}  // namespace

Status check_tokens(std::span<const int32_t> tokens, int64_t vocab) {
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= vocab)
      return invalid_argument("token " + std::to_string(tokens[i]) + " at place " + std::to_string(i) +
                              ", expected 0 to " + std::to_string(vocab - 1));
  return {};
}

Result<std::unique_ptr<Request>> make_request(GenerateRequest ask, uint64_t id, int64_t vocab, int64_t context) {
  const auto prompt = static_cast<int64_t>(ask.prompt.size());
  if (prompt == 0) return invalid_argument("the prompt is empty, expected at least one token");
  HB_TRY(check_tokens(ask.prompt, vocab).with_context("prompt"));
  HB_TRY(check_tokens(ask.stop_tokens, vocab).with_context("stop tokens"));
  HB_TRY(check_sampling(ask.sampling, vocab));
  if (ask.sampling.policy.rule != TemperatureRule::kFixed && ask.step_classes == nullptr)
    return invalid_argument("the temperature policy " + quote(name_of(ask.sampling.policy.rule)) +
                            " needs step_classes, which say where steps end (TextModel has them)");
  if (ask.max_tokens < 0)
    return invalid_argument("max_tokens is " + std::to_string(ask.max_tokens) + ", expected 0 or more");
  if (prompt >= context)
    return resource_exhausted("the prompt has " + std::to_string(prompt) +
                              " tokens, which leaves no room in the context of " + std::to_string(context) +
                              "; shorten it or ask for a longer context");
  if (ask.max_tokens > context - prompt)
    return resource_exhausted("the prompt has " + std::to_string(prompt) + " tokens and max_tokens is " +
                              std::to_string(ask.max_tokens) + ", together more than the context of " +
                              std::to_string(context));

  auto request = std::make_unique<Request>();
  request->id = id;
  request->prompt_tokens = prompt;
  request->limit = ask.max_tokens > 0 ? prompt + ask.max_tokens : context;
  request->tokens = std::move(ask.prompt);
  request->tokens.reserve(static_cast<size_t>(request->limit));
  if (has_penalties(ask.sampling)) {
    request->history.emplace(vocab);
    for (const int32_t token : request->tokens) request->history->add_prompt(token);
  }
  if (ask.sampling.policy.rule != TemperatureRule::kFixed) request->policy.emplace(ask.sampling.policy);
  request->ask = std::move(ask);
  return request;
}

Result<ResolvedOptions> resolve_options(const ModelFacts& model, const EngineOptions& asked, uint64_t available) {
  return resolve_options(model.config, asked, available,
                         [&](const RunnerLimits& limits) { return cpu_runner_footprint(model, limits); });
}

Result<ResolvedOptions> resolve_options(const ModelConfig& config, const EngineOptions& asked, uint64_t available,
                                        const FootprintOf& footprint) {
  const int64_t longest = config.context;
  HB_TRY(check_options(asked, config).with_context("engine options"));
  EngineOptions o = asked;
  if (o.context == 0) o.context = o.kv_tokens > 0 ? std::min(longest, o.kv_tokens) : longest;
  if (o.kv_tokens == 0) o.kv_tokens = o.context;
  if (o.threads == 0) o.threads = default_thread_count();
  o.prefill_chunk = std::min(o.prefill_chunk, o.context);

  RunnerFootprint needed = footprint(runner_limits(o));
  if (needed.total() > available) {
    const uint64_t pages = pages_that_fit(footprint, runner_limits(o), available);
    const auto fits = static_cast<int64_t>(std::min<uint64_t>(pages, uint64_t{1} << 40)) * o.page_tokens;
    // Nobody named a size: take what fits with a tenth to spare; metrics() says how much that is.
    const int64_t shrunk = fits / 10 * 9 / o.page_tokens * o.page_tokens;
    if (asked.context != 0 || asked.kv_tokens != 0 || shrunk < std::min(kLeastContext, longest))
      return resource_exhausted("a KV cache of " + std::to_string(o.kv_tokens) + " tokens needs " +
                                format_bytes(needed.kv) + " and work space " + format_bytes(needed.work) + ", " +
                                format_bytes(available) + " are available; " +
                                (fits > 0 ? "a context of " + std::to_string(fits) + " tokens would fit"
                                          : "free memory or choose a smaller model"));
    o.context = o.kv_tokens = std::min(o.context, shrunk);
    o.prefill_chunk = std::min(o.prefill_chunk, o.context);
    needed = footprint(runner_limits(o));
  }
  return ResolvedOptions{o, runner_limits(o), needed};
}

}  // namespace halfbyte
