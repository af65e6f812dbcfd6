#include "decode/marker_penalty.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace halfbyte {
namespace {

constexpr auto kWords = std::to_array<std::string_view>(
    {"perhaps",       "maybe",         "wait",    "Wait",    "actually", "hold",      "Hmm",         "hmm",
     "Alternatively", "alternatively", "However", "however", "instead",  "Instead",   "But",         "but",
     "though",        "although",      "yet",     "rather",  "unless",   "otherwise", "nonetheless", "nevertheless",
     "regardless",    "still",         "anyway",  "Or",      "or",       "either",    "whether",     "uncertain",
     "unsure",        "possibly",      "might",   "could",   "another",  "different", "reconsider",  "rethink",
     "backtrack",     "retry",         "recheck", "revisit", "doubt",    "confused",  "wrong",       "mistake",
     "error",         "incorrect"});

}  // namespace

std::span<const std::string_view> marker_words() {
  return kWords;
}

bool is_marker(std::string_view text) {
  if (text.starts_with(' ')) text.remove_prefix(1);
  return std::ranges::find(kWords, text) != kWords.end();
}

Status check_marker_tokens(const SamplingParams& params, int64_t vocab) {
  if (!has_marker_penalty(params)) return {};
  const std::vector<int32_t>& tokens = params.marker_tokens;
  if (tokens.empty())
    return invalid_argument(
        "a marker penalty needs marker_tokens, the ids that it is taken from (marker_tokens() has them)");
  // Ascending: each once.
  const bool ascending = std::ranges::adjacent_find(tokens, std::greater_equal<>()) == tokens.end();
  if (!ascending || tokens.front() < 0 || tokens.back() >= vocab)
    return invalid_argument("marker_tokens are not ascending ids from 0 to " + std::to_string(vocab - 1));
  return {};
}

void apply_marker_penalty(const SamplingParams& params, std::span<float> logits) {
  for (const int32_t token : params.marker_tokens) logits[static_cast<size_t>(token)] -= params.marker_penalty;
}

}  // namespace halfbyte
