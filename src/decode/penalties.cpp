#include "decode/penalties.h"

namespace halfbyte {

TokenHistory::TokenHistory(int64_t vocab)
    : generated_(static_cast<size_t>(vocab)), is_seen_(static_cast<size_t>(vocab)) {
  seen_.reserve(static_cast<size_t>(vocab));
}

void TokenHistory::note(int32_t token) {
  const auto t = static_cast<size_t>(token);
  if (is_seen_[t]) return;
  is_seen_[t] = true;
  seen_.push_back(token);
}

void TokenHistory::add_prompt(int32_t token) {
  note(token);
}

void TokenHistory::add_generated(int32_t token) {
  note(token);
  ++generated_[static_cast<size_t>(token)];
}

void apply_penalties(const SamplingParams& params, const TokenHistory& history, std::span<float> logits) {
  for (const int32_t token : history.seen()) {
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0.0f ? logit / params.repetition_penalty : logit * params.repetition_penalty;
    const uint32_t count = history.generated_count(token);
    if (count == 0) continue;
    logit -= params.frequency_penalty * static_cast<float>(count);
    logit -= params.presence_penalty;
  }
}

}  // namespace halfbyte
