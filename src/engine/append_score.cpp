#include "engine/append_score.h"

#include <algorithm>
#include <string>

namespace halfbyte {

Status append_score(std::span<const float> logits, int32_t next, int64_t at, const ScoreOptions& options,
                    const LogitFns& fns, ScoreResult& out) {
  const auto vocab = static_cast<int64_t>(logits.size());
  const float max = fns.finite_max(logits.data(), vocab);
  if (max != max)
    return invalid_data("the model gave a logit that is NaN or infinite at position " + std::to_string(at) +
                        "; its weights are broken or overflow in this plan");
  const LogitSums sums = fns.sums(logits.data(), vocab, max);
  out.logprobs.push_back(token_logprob(logits[static_cast<size_t>(next)], max, sums));
  if (options.entropy) out.entropies.push_back(static_cast<float>(sums.entropy));
  out.argmax.push_back(static_cast<int32_t>(std::find(logits.begin(), logits.end(), max) - logits.begin()));
  if (options.logits && at >= options.logits_from) out.logits.insert(out.logits.end(), logits.begin(), logits.end());
  return {};
}

}  // namespace halfbyte
