// Penalties on tokens that a request has already seen, and the counts they need.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "halfbyte/generate.h"

namespace halfbyte {

inline bool has_penalties(const SamplingParams& params) {
  return params.repetition_penalty != 1.0f || params.frequency_penalty != 0.0f || params.presence_penalty != 0.0f;
}

// Which tokens stand in a request's prompt and text so far. Adding and listing never allocate. Thread-compatible.
class TokenHistory {
 public:
  explicit TokenHistory(int64_t vocab);

  void add_prompt(int32_t token);
  void add_generated(int32_t token);

  // Each distinct token once, in order of first appearance.
  std::span<const int32_t> seen() const { return seen_; }
  uint32_t generated_count(int32_t token) const { return generated_[static_cast<size_t>(token)]; }

 private:
  void note(int32_t token);
  std::vector<uint32_t> generated_;  // [vocab]: occurrences among generated tokens
  std::vector<bool> is_seen_;        // [vocab]
  std::vector<int32_t> seen_;
};

// In place on logits [vocab]. Repetition first (positive logits divided, others multiplied; prompt and generated
// tokens), then frequency * count and presence are subtracted (generated tokens only), as vLLM and OpenAI define them.
void apply_penalties(const SamplingParams& params, const TokenHistory& history, std::span<float> logits);

}  // namespace halfbyte
