// One request from prompt to text: submits it, steps the engine to its end, and turns tokens into reasoning and answer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "chat/text_model.h"
#include "halfbyte/engine.h"
#include "text/output_text.h"

namespace halfbyte {

struct CompletionOptions {
  SamplingParams sampling;
  int64_t max_tokens = 0;          // 0: up to the context left
  std::vector<std::string> stops;  // stop strings, left out of the text
  bool split_reasoning = true;     // false: reasoning stays in the answer, tags and all
};

struct CompletionTiming {
  double prefill_s = 0;  // from the submission to the first token
  double decode_s = 0;   // from the first token to the last
  // 0 where there is nothing to measure.
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;  // tokens after the first
};

struct Completion {
  std::string reasoning, text;
  int64_t prompt_tokens = 0;
  int64_t reasoning_tokens = 0;
  std::vector<int32_t> token_ids;  // with the token that ended it
  std::vector<TokenEvent> events;  // one a token, when logprobs or entropy were asked for
  FinishReason finish = FinishReason::kNone;
  CompletionTiming timing;
};

// Sees the text as it comes. False stops the generation (finish kCancelled).
using OnDelta = std::function<bool(const OutputDelta& delta)>;

// The engine must have nothing else to do. What can be said without the model is refused first: bad sampling values, a
// prompt longer than the context (both numbers).
Result<Completion> complete(Engine& engine, const TextModel& text, const Prompt& prompt,
                            const CompletionOptions& options, const OnDelta& on_delta);

}  // namespace halfbyte
