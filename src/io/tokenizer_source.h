// The facts around a tokenizer: which file holds it, chat templates, special tokens. text/ makes the tokenizer itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

struct ChatTemplateText {
  std::string name;    // "default", "tool_use", ...
  std::string source;  // Jinja
};

struct TokenizerAddedToken {
  int64_t id = 0;
  std::string text;
  bool special = false;
};

// A GGUF file's vocabulary as plain arrays (tokenizer.ggml.*), for text's BpeVocab. Byte-level BPE ("gpt2") and
// SentencePiece's BPE ("llama") are read; other models are kUnsupported.
struct GgufVocab {
  std::string pre;                  // pre-tokeniser: "gpt-2", "smollm", "qwen2", "llama-bpe", ...; "default" if absent
  std::vector<std::string> tokens;  // by id; byte-level alphabet text for normal tokens, plain text for added ones
  std::vector<std::string> merges;  // "a b", in rank order
  std::vector<float> scores;        // "llama": one a token; else empty
  bool space_prefix = true;         // "llama": text begins with a space that is not there
  std::vector<TokenizerAddedToken> added;  // control tokens (special) and user-defined ones, by id
  std::optional<int32_t> bos, eos, eot, unk, pad;
  bool add_bos = false;
  bool add_eos = false;
};

struct TokenizerSource {
  std::string path;                              // the folder or file, as given
  std::string tokenizer_json_path;               // folder: its tokenizer.json; empty for GGUF
  std::optional<GgufVocab> vocab;                // GGUF
  std::vector<ChatTemplateText> chat_templates;  // chat_template.jinja wins over tokenizer_config.json's "default"
  // Text, "" if there is none. special_tokens_map.json fills what tokenizer_config.json leaves open.
  std::string bos_token, eos_token, pad_token, unk_token;
  std::optional<bool> add_bos_token, add_eos_token;  // as the file says; tokenizer.json's post-processor decides
  std::vector<TokenizerAddedToken> added_tokens;     // tokenizer_config.json added_tokens_decoder, by id
  std::optional<int64_t> model_max_length;           // none when absent or "very large"

  // The template named `name`, or null.
  const ChatTemplateText* chat_template(std::string_view name = "default") const;
};

// kNotFound when there is neither a tokenizer.json in the folder nor a vocabulary in the GGUF file (says what was
// looked for). tokenizer.json itself is not read here.
Result<TokenizerSource> open_tokenizer_source(const std::string& path);

// tokenizer_config.json alone.
Result<TokenizerSource> parse_tokenizer_config(std::string_view json, const std::string& file);

}  // namespace halfbyte
