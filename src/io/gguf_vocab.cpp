#include <algorithm>
#include <array>
#include <utility>

#include "io/gguf.h"
#include "io/message.h"

namespace halfbyte {
namespace {

// tokenizer.ggml.token_type
enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// Pre-tokenisers whose models start every text with BOS unless add_bos_token says otherwise (llama.cpp's rule).
constexpr std::array<std::string_view, 3> kBosByDefault = {"llama3", "llama-v3", "llama-bpe"};

Status read_id(const GgufFile& file, const char* key, size_t vocab, std::optional<int32_t>& out) {
  // Some converters write 0xFFFFFFFF or -1 for "none".
  HB_ASSIGN(const auto id, file.integer(key, -1, UINT32_MAX));
  if (!id || *id == -1 || *id == UINT32_MAX) return {};
  if (static_cast<uint64_t>(*id) >= vocab) {
    return file.error(key, "is " + std::to_string(*id) + ", outside the vocabulary of " + std::to_string(vocab));
  }
  out = static_cast<int32_t>(*id);
  return {};
}

// Converters fill a vocabulary up to the embedding's rows with "[PAD151936]"; such ids have no text.
bool is_padding(std::string_view text, size_t id) {
  return text == "[PAD" + std::to_string(id) + "]";
}

void sort_tokens(const std::vector<int64_t>& types, GgufVocab& vocab) {
  const std::array special = {vocab.bos, vocab.eos, vocab.eot, vocab.unk, vocab.pad};
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    std::string& text = vocab.tokens[id];
    int64_t type = types.empty() ? int64_t{kNormal} : types[id];
    if (types.empty() &&
        std::find(special.begin(), special.end(), std::optional(static_cast<int32_t>(id))) != special.end())
      type = kControl;
    if (type == kUnused || is_padding(text, id)) {
      text.clear();
      continue;
    }
    if (type == kControl || type == kUnknown || type == kUserDefined) {
      vocab.added.push_back({static_cast<int64_t>(id), text, type != kUserDefined});
    }
  }
}

Status read_scores(const GgufFile& file, GgufVocab& vocab) {
  HB_ASSIGN(vocab.scores, file.floats("tokenizer.ggml.scores"));
  if (vocab.scores.size() != vocab.tokens.size())
    return file.error("tokenizer.ggml.scores", "has " + std::to_string(vocab.scores.size()) +
                                                   " numbers, but there are " + std::to_string(vocab.tokens.size()) +
                                                   " tokens");
  HB_ASSIGN(const auto prefix, file.boolean("tokenizer.ggml.add_space_prefix"));
  vocab.space_prefix = prefix.value_or(true);
  return {};
}

Status read_chat_templates(const GgufFile& file, std::vector<ChatTemplateText>& out) {
  HB_ASSIGN(const auto main, file.string("tokenizer.chat_template"));
  if (main) out.push_back({"default", std::string(*main)});
  HB_ASSIGN(const auto names, file.strings("tokenizer.chat_templates"));
  for (const std::string_view name : names) {
    if (name == "default" && main) continue;
    HB_ASSIGN(const auto text, file.string("tokenizer.chat_template." + std::string(name)));
    if (!text)
      return file.error("tokenizer.chat_templates", "names the template " + quote(name) + ", which is not there");
    out.push_back({std::string(name), std::string(*text)});
  }
  return {};
}

}  // namespace

Result<GgufVocab> gguf_vocab(const GgufFile& file) {
  HB_ASSIGN(const auto model, file.string("tokenizer.ggml.model"));
  if (!model) return not_found(file.name() + ": holds no vocabulary (no metadata key 'tokenizer.ggml.model')");
  const bool sentencepiece = *model == "llama";
  if (*model != "gpt2" && !sentencepiece) {
    return unsupported(file.error("tokenizer.ggml.model", "is " + quote(*model) +
                                                              ", which is not supported; supported: gpt2 (byte-level "
                                                              "BPE) and llama (SentencePiece's BPE)")
                           .message());
  }
  GgufVocab vocab;
  HB_ASSIGN(const auto pre, file.string("tokenizer.ggml.pre"));
  vocab.pre = std::string(pre.value_or("default"));
  HB_ASSIGN(const auto tokens, file.strings("tokenizer.ggml.tokens"));
  HB_ASSIGN(const auto merges, file.strings("tokenizer.ggml.merges"));
  HB_ASSIGN(const auto types, file.integers("tokenizer.ggml.token_type"));
  if (tokens.empty()) return invalid_data(file.name() + ": has no tokens (metadata key 'tokenizer.ggml.tokens')");
  if (tokens.size() > INT32_MAX)
    return file.error("tokenizer.ggml.tokens",
                      "has " + std::to_string(tokens.size()) + " tokens, expected at most 2^31 - 1");
  if (!types.empty() && types.size() != tokens.size()) {
    return file.error("tokenizer.ggml.token_type", "has " + std::to_string(types.size()) + " entries, but there are " +
                                                       std::to_string(tokens.size()) + " tokens");
  }
  vocab.tokens.assign(tokens.begin(), tokens.end());
  vocab.merges.assign(merges.begin(), merges.end());
  HB_TRY(read_id(file, "tokenizer.ggml.bos_token_id", tokens.size(), vocab.bos));
  HB_TRY(read_id(file, "tokenizer.ggml.eos_token_id", tokens.size(), vocab.eos));
  HB_TRY(read_id(file, "tokenizer.ggml.eot_token_id", tokens.size(), vocab.eot));
  HB_TRY(read_id(file, "tokenizer.ggml.unknown_token_id", tokens.size(), vocab.unk));
  HB_TRY(read_id(file, "tokenizer.ggml.padding_token_id", tokens.size(), vocab.pad));
  HB_ASSIGN(const auto add_bos, file.boolean("tokenizer.ggml.add_bos_token"));
  HB_ASSIGN(const auto add_eos, file.boolean("tokenizer.ggml.add_eos_token"));
  if (sentencepiece) HB_TRY(read_scores(file, vocab));
  const bool by_default =
      sentencepiece || std::find(kBosByDefault.begin(), kBosByDefault.end(), vocab.pre) != kBosByDefault.end();
  vocab.add_bos = add_bos.value_or(by_default) && vocab.bos.has_value();
  vocab.add_eos = add_eos.value_or(false);
  sort_tokens(types, vocab);
  return vocab;
}

Result<TokenizerSource> gguf_tokenizer_source(const GgufFile& file) {
  TokenizerSource source;
  HB_ASSIGN(source.vocab, gguf_vocab(file));
  HB_TRY(read_chat_templates(file, source.chat_templates));
  const GgufVocab& vocab = *source.vocab;
  const auto text_of = [&](const std::optional<int32_t>& id) {
    return id ? vocab.tokens[static_cast<size_t>(*id)] : std::string();
  };
  source.bos_token = text_of(vocab.bos);
  source.eos_token = text_of(vocab.eos);
  source.pad_token = text_of(vocab.pad);
  source.unk_token = text_of(vocab.unk);
  source.add_bos_token = vocab.add_bos;
  source.add_eos_token = vocab.add_eos;
  source.added_tokens = vocab.added;
  return source;
}

}  // namespace halfbyte
