#include "text/reasoning.h"

#include <algorithm>
#include <utility>

namespace halfbyte {
namespace {

constexpr std::string_view kSpace = " \t\r\n\f\v";

// The length of the longest suffix of `text` that is a proper prefix of `tag`.
size_t partial_tag(std::string_view text, std::string_view tag) {
  for (size_t n = std::min(text.size(), tag.size() - 1); n > 0; --n) {
    if (text.ends_with(tag.substr(0, n))) return n;
  }
  return 0;
}

}  // namespace

ReasoningState reasoning_start(std::string_view prompt, const ReasoningTags& tags) {
  prompt = prompt.substr(0, prompt.find_last_not_of(kSpace) + 1);
  if (prompt.ends_with(tags.open)) return ReasoningState::kInsideStart;
  if (prompt.ends_with(tags.close)) return ReasoningState::kAfter;
  return ReasoningState::kBefore;
}

ReasoningSplitter::ReasoningSplitter(ReasoningState start, ReasoningTags tags)
    : tags_(std::move(tags)), state_(start) {}

void ReasoningSplitter::push(std::string_view text, std::string& reasoning, std::string& answer) {
  held_ += text;
  while (step(reasoning, answer)) {
  }
}

bool ReasoningSplitter::step(std::string& reasoning, std::string& answer) {
  switch (state_) {
    case ReasoningState::kBefore:
    case ReasoningState::kInsideStart: return step_start(answer);
    case ReasoningState::kInside: return step_inside(reasoning);
    case ReasoningState::kAfterStart:
      held_.erase(0, held_.find_first_not_of(kSpace));
      if (held_.empty()) return false;
      state_ = ReasoningState::kAfter;
      return true;
    case ReasoningState::kAfter:
      answer += held_;
      held_.clear();
      return false;
  }
  return false;
}

// White space, then perhaps an opening tag.
bool ReasoningSplitter::step_start(std::string& answer) {
  const bool before = state_ == ReasoningState::kBefore;
  const size_t spaces = std::min(held_.find_first_not_of(kSpace), held_.size());
  if (before) space_.append(held_, 0, spaces);
  held_.erase(0, spaces);
  const std::string_view text = held_;
  if (text.size() < tags_.open.size() && tags_.open.starts_with(text)) return false;
  if (text.starts_with(tags_.open)) {
    held_.erase(0, tags_.open.size());
    state_ = ReasoningState::kInsideStart;
  } else {
    if (before) answer += space_;
    state_ = before ? ReasoningState::kAfter : ReasoningState::kInside;
  }
  space_.clear();
  return true;
}

bool ReasoningSplitter::step_inside(std::string& reasoning) {
  if (const size_t close = held_.find(tags_.close); close != std::string::npos) {
    reasoning.append(held_, 0, close);
    held_.erase(0, close + tags_.close.size());
    state_ = ReasoningState::kAfterStart;
    return true;
  }
  const size_t certain = held_.size() - partial_tag(held_, tags_.close);
  reasoning.append(held_, 0, certain);
  held_.erase(0, certain);
  return false;
}

void ReasoningSplitter::flush(std::string& reasoning, std::string& answer) {
  std::string& target = inside() ? reasoning : answer;
  target += space_;
  target += held_;
  space_.clear();
  held_.clear();
}

}  // namespace halfbyte
