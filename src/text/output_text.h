// What a generation's tokens say: the whole way from token to text in the order that keeps every stage right under any
// cut: token bytes -> whole characters -> stop strings -> reasoning or answer.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "halfbyte/message.h"
#include "text/detokenizer.h"
#include "text/reasoning.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace halfbyte {

struct OutputTextOptions {
  std::shared_ptr<const StopSet> stops;  // null: none
  bool include_stop = false;             // the stop string stays in the text
  bool skip_special = true;              // special tokens give no text
  // Where the prompt leaves the model (reasoning_start); none: reasoning is not told apart, all is answer.
  std::optional<ReasoningState> reasoning = ReasoningState::kBefore;
  ReasoningTags tags;
};

// Thread-compatible.
class OutputText {
 public:
  OutputText(std::shared_ptr<const Tokenizer> tokenizer, const OutputTextOptions& options);

  // Appends to `delta` what the token makes certain. True when a stop string is complete: generation should end, and
  // later tokens count for nothing.
  bool push(int32_t token, OutputDelta& delta);
  // The generation has ended: lets out what was held back.
  void flush(OutputDelta& delta);

  std::optional<size_t> stop_found() const;                       // which of StopSet::stops()
  int64_t reasoning_tokens() const { return reasoning_tokens_; }  // with those of the tags
  bool in_reasoning() const { return splitter_.inside(); }

 private:
  Detokenizer detokenizer_;
  std::optional<StopMatcher> stops_;
  ReasoningSplitter splitter_;
  int64_t reasoning_tokens_ = 0;
  std::string characters_, certain_;  // kept for their memory
};

}  // namespace halfbyte
