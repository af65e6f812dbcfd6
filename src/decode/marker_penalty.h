// The marker penalty (Lotfi et al., arXiv 2606.00206): quantised reasoning models doubt what they have already settled. A
// constant is taken from the logits of the words they do it with ("wait", "but", "alternatively"), at every token:
//   l[t] <- l[t] - lambda  for each marker t
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "halfbyte/generate.h"

namespace halfbyte {

// As the paper lists them.
std::span<const std::string_view> marker_words();
// Whether a token's text is one of the words, with one space in front or without.
bool is_marker(std::string_view text);

inline bool has_marker_penalty(const SamplingParams& params) {
  return params.marker_penalty != 0.0f;
}
// invalid_argument where a penalty has no tokens to be taken from, or they are not ascending ids of the vocabulary.
Status check_marker_tokens(const SamplingParams& params, int64_t vocab);

// In place on logits [vocab].
void apply_marker_penalty(const SamplingParams& params, std::span<float> logits);

}  // namespace halfbyte
