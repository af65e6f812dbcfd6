// A model's way with text: its tokenizer, its chat template, and the tokens that text of a request may not contain.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace halfbyte {

// Thread-safe once opened.
struct TextModel {
  std::string path;
  std::shared_ptr<const Tokenizer> tokenizer;
  std::shared_ptr<const ChatTemplate> chat_template;  // null: see template_status
  Status template_status;                             // why there is none, with the next step
  std::string bos_token, eos_token;                   // text, "" if there is none
  // Sorted ids of the added tokens that a turn is made of: special ones and those that the template writes ("<|User|>" of
  // R1 is not marked special). They are never read in text of a request.
  std::vector<int32_t> control_tokens;
  bool template_reads_thinking = false;  // the template asks for enable_thinking
};

// `path`: a Hugging Face folder or a .gguf file. A missing or unusable chat template is no failure here.
Result<TextModel> open_text_model(const std::string& path);

struct Prompt {
  std::vector<int32_t> tokens;
  std::string text;  // rendered; its end says whether the model starts inside its reasoning
};

// The conversation in the model's own format, ready for the model to answer. Text of the messages, tools and arguments
// cannot become a control token.
Result<Prompt> chat_prompt(const TextModel& model, const std::vector<ChatMessage>& messages,
                           const ChatRenderOptions& options);
// The text as it is, with the model's own beginning (BOS for some models); special tokens in it are read.
Result<Prompt> raw_prompt(const TextModel& model, std::string_view text);

}  // namespace halfbyte
