#include "eval/perplexity.h"

#include <cmath>
#include <numeric>
#include <string>

namespace halfbyte {

Result<Perplexity> perplexity(Engine& engine, std::span<const int32_t> tokens, int64_t window,
                              const std::function<bool(int64_t done, int64_t total)>& on_progress) {
  if (window < 2) return invalid_argument("a window of " + std::to_string(window) + " tokens, expected 2 at least");
  const int64_t windows = static_cast<int64_t>(tokens.size()) / window;
  if (windows == 0) {
    return invalid_argument("the text has " + std::to_string(tokens.size()) + " tokens, expected a whole window of " +
                            std::to_string(window) + " at least; choose a smaller window");
  }
  double nats = 0;
  Perplexity out;
  for (; out.windows < windows; ++out.windows) {
    if (on_progress && !on_progress(out.windows, windows)) return cancelled("the scoring was interrupted");
    const auto own = tokens.subspan(static_cast<size_t>(out.windows * window), static_cast<size_t>(window));
    HB_ASSIGN(const ScoreResult scores, engine.score(own, {.logits = false, .entropy = false}));
    nats -= std::accumulate(scores.logprobs.begin(), scores.logprobs.end(), 0.0);
    out.tokens += static_cast<int64_t>(scores.logprobs.size());
  }
  out.nats = nats / static_cast<double>(out.tokens);
  out.perplexity = std::exp(out.nats);
  return out;
}

}  // namespace halfbyte
