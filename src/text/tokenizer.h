// Byte-level BPE and SentencePiece's BPE, read from a Hugging Face tokenizer.json or from a GGUF vocabulary.
//
// Pipeline: added tokens (longest match, before anything else) -> NFC where the model wants it -> pre-tokeniser ->
// byte-level BPE with merges by rank. SentencePiece: added tokens -> a space in front -> BPE over characters, with bytes
// for those that are no token. Every step is linear or O(n log n) in the input.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

struct EncodeOptions {
  // Whether added tokens that are `special` ("<|im_end|>") are recognised in the text. Template text: true; text that a
  // user typed: false, so that it can never end a turn. Added tokens that are not special are always recognised.
  bool special_tokens = true;
  // Whether the model's own prefix/suffix (post-processor: BOS for some models) is added.
  bool add_bos = false;
};

// A piece of a prompt. Pieces lie side by side in one text: the pre-tokeniser sees no border between them.
struct TextRun {
  std::string_view text;
  bool from_request = false;  // typed by a user, a tool or the model: no control token is read in it
};

struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = false;
};

// GGUF vocabularies arrive as plain arrays (src/io/gguf.h makes one of these).
struct BpeVocab {
  std::vector<std::string> tokens;  // by id; as the file spells them (BpeSpelling)
  std::vector<std::string> merges;  // "a b", in rank order
  std::vector<AddedToken> added;
  std::vector<float> scores;  // by id; not empty: SentencePiece's BPE, whose merges follow from them
  bool space_prefix = true;   // SentencePiece: a space before each part of the text
  std::string pre;  // pre-tokeniser: "gpt-2", "smollm", "qwen2", "llama-bpe", ... (GGUF's tokenizer.ggml.pre names)
  std::optional<int32_t> bos, eos, unk, pad;
  bool add_bos = false, add_eos = false;
};

// Thread-safe after creation.
class Tokenizer {
 public:
  static Result<std::shared_ptr<const Tokenizer>> from_tokenizer_json(std::string_view json, const std::string& name);
  static Result<std::shared_ptr<const Tokenizer>> from_vocab(BpeVocab vocab, const std::string& name);
  ~Tokenizer();

  // Appends to `out`. Invalid UTF-8 is an error that says at which byte.
  Status encode(std::string_view text, const EncodeOptions& options, std::vector<int32_t>& out) const;
  Result<std::vector<int32_t>> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The ids of all runs as one text. An added token that is special or among `control` (sorted ids) is read only where
  // no byte of it came with the request; elsewhere it is plain text. Nothing is added in front or behind.
  Result<std::vector<int32_t>> encode_runs(std::span<const TextRun> runs, std::span<const int32_t> control) const;

  // The bytes a token stands for (may be part of a UTF-8 character); empty for an id without a token.
  std::string_view token_bytes(int32_t id) const;
  bool is_special(int32_t id) const;
  // The id of an added token or vocabulary entry with exactly this text.
  std::optional<int32_t> find(std::string_view text) const;
  // All bytes of the ids, put together; special tokens are left out if asked. The bytes may be broken UTF-8: see
  // detokenizer.h.
  std::string decode(std::span<const int32_t> ids, bool skip_special = false) const;

  // Decoded text loses the space that it begins with: encoding put one there.
  bool drops_first_space() const;

  int32_t vocab_size() const;  // largest id + 1
  std::optional<int32_t> bos() const;
  std::optional<int32_t> eos() const;
  const std::vector<AddedToken>& added_tokens() const;
  const std::string& pre_tokenizer_name() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace halfbyte
