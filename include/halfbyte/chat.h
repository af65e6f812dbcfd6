// From messages to text: a model's tokenizer and chat template, and one request from prompt to answer.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "halfbyte/engine.h"
#include "halfbyte/generate.h"
#include "halfbyte/message.h"
#include "halfbyte/model.h"
#include "halfbyte/status.h"

namespace halfbyte {

class ChatTemplate;  // src/text/chat_template.h
class Tokenizer;     // src/text/tokenizer.h

// A model's way with text. Thread-safe once opened.
struct TextModel {
  std::string path;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: see template_status
  Status template_status;                             // why there is none, with the next step
  std::string bos_token, eos_token;                   // text, "" if there is none
  // Sorted ids of the added tokens that a turn is made of: special ones and those that the template writes
  // ("<|User|>" of R1 is not marked special). They are never read in text of a request.
  std::vector<int32_t> control_tokens;
  std::shared_ptr<const StepClasses> step_classes;  // where reasoning steps end, for temperature policies
  bool template_reads_thinking = false;             // the template asks for enable_thinking
};

// `path`: a Hugging Face folder or a .gguf file. A missing or unusable chat template is no failure here. kNotFound,
// kInvalidData and kUnsupported (vocabularies that are no byte-level BPE) as Model::load.
Result<TextModel> open_text_model(const std::string& path);

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;  // rendered; its end says whether the model starts inside its reasoning
};

// The conversation in the model's own format, ready for the model to answer. Text of the messages, tools and arguments
// cannot become a control token. Fails with template_status where there is no template, with line and column where the
// template refuses (kInvalidData) or needs more than the subset (kUnsupported), with kResourceExhausted where it
// exceeds a limit (docs/chat-templates.md).
Result<Prompt> chat_prompt(const TextModel& text, const std::vector<ChatMessage>& messages,
                           const ChatRenderOptions& options = {});
// The text as it is, with the model's own beginning (BOS for some models); special tokens in it are read.
Result<Prompt> raw_prompt(const TextModel& text, std::string_view prompt);

// What the tokens say, without special tokens; bytes that are no whole character become U+FFFD.
std::string decode(const TextModel& text, std::span<const int32_t> tokens);

// Tokens that end an answer: the configuration's and the tokenizer's.
std::vector<int32_t> stop_tokens(const Model& model, const TextModel& text);

// Ids of the marker penalty's words (SamplingParams::marker_penalty) as this vocabulary has them: tokens whose text is such
// a word, with one space in front or without; ascending. Empty where every one of them is several tokens.
std::vector<int32_t> marker_tokens(const Model& model, const TextModel& text);

// How the model's maker wants it sampled (generation_config.json, read as vLLM reads it); greedy where it says nothing.
SamplingParams default_sampling(const Model& model);

struct CompletionOptions {
  SamplingParams sampling;
  int64_t max_tokens = 0;                           // 0: up to the context left
  std::vector<std::string> stops;                   // stop strings, left out of the text
  bool stop_on_loop = false;                        // GenerateRequest::stop_on_loop
  bool split_reasoning = true;                      // false: reasoning stays in the answer, tags and all
  std::function<void(const TokenEvent&)> on_token;  // sees each token before its text, on the caller's thread
  // Most tokens of reasoning; -1: no bound. When they are spent, the model's reasoning is closed for it: the text below
  // and the closing tag take the place of what it would draw (Engine::force), and it goes on with the answer in the same
  // request. The forced tokens count among the answer's tokens and for max_tokens. Needs split_reasoning.
  int64_t thinking_budget = -1;
  std::string budget_text = "\n\nI have to answer now.";
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
  std::vector<TokenEvent> events;  // one a token, with logprobs, entropy or a temperature policy
  FinishReason finish = FinishReason::kNone;
  bool at_stop_text = false;  // one of CompletionOptions::stops ended it, not the model
  CompletionTiming timing;
};

// Sees the text as it comes, on the caller's thread. False stops the generation (finish kCancelled).
using OnDelta = std::function<bool(const OutputDelta& delta)>;

// Submits the prompt and steps the engine to the end of the answer: the engine must have nothing else to do. What can
// be said without the model is refused first, as by Engine::submit: bad sampling values, a prompt longer than the
// context (both numbers). kInternal: the model gave no finite logits.
Result<Completion> complete(Engine& engine, const TextModel& text, const Prompt& prompt,
                            const CompletionOptions& options, const OnDelta& on_delta = nullptr);

}  // namespace halfbyte
