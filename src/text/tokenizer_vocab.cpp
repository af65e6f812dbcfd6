// Tokenizers from GGUF vocabularies. The file names its pre-tokeniser by one of llama.cpp's names; what such a model
// was trained with (normal form, whole-word hits) follows from that name.
#include <fmt/format.h>

#include <array>
#include <utility>

#include "base/quote.h"
#include "base/utf8.h"
#include "text/tokenizer_core.h"

namespace halfbyte {
namespace {

struct PreKind {
  std::string_view name;           // tokenizer.ggml.pre
  Status (*build)(Pretokenizer&);  // adds the stages
  bool nfc;
  bool ignore_merges;
};

Status build_gpt2(Pretokenizer& pre) {
  pre.add(make_gpt2_splitter());
  return {};
}

Status build_smollm(Pretokenizer& pre) {
  pre.add(make_digits_splitter(/*individual=*/true));
  pre.add(make_gpt2_splitter());
  return {};
}

Status build_qwen2(Pretokenizer& pre) {
  pre.add(make_qwen2_splitter());
  return {};
}

Status build_qwen35(Pretokenizer& pre) {
  pre.add(make_qwen35_splitter());
  return {};
}

Status build_llama3(Pretokenizer& pre) {
  pre.add(make_llama3_splitter());
  return {};
}

// What llama.cpp does with a file that names no pre-tokeniser.
Status build_default(Pretokenizer& pre) {
  HB_ASSIGN(auto punctuation, make_regex_splitter(R"([\p{P}\$\+<=>\^~\|]+)", {}));
  HB_ASSIGN(auto numbers, make_regex_splitter(R"(\p{N}+)", {}));
  HB_ASSIGN(auto triples, make_regex_splitter("[0-9][0-9][0-9]", {}));
  pre.add(std::move(punctuation));
  pre.add(make_gpt2_splitter());
  pre.add(std::move(numbers));
  pre.add(std::move(triples));
  return {};
}

constexpr PreKind kPreKinds[] = {
    {"gpt-2", build_gpt2, false, false},
    {"phi-2", build_gpt2, false, false},
    {"smollm", build_smollm, false, false},
    {"qwen2", build_qwen2, true, false},
    {"deepseek-r1-qwen", build_qwen2, true, false},
    {"qwen35", build_qwen35, true, false},
    {"llama-bpe", build_llama3, false, true},
    {"llama3", build_llama3, false, true},
    {"llama-v3", build_llama3, false, true},
    {"default", build_default, false, false},
};

constexpr PreKind kSentencePieceKind = {"sentencepiece", [](Pretokenizer&) { return Status(); }, false, false};

Result<const PreKind*> find_kind(const std::string& pre) {
  const std::string_view name = pre.empty() ? "default" : std::string_view(pre);
  std::string known;
  for (const PreKind& kind : kPreKinds) {
    if (kind.name == name) return &kind;
    if (!known.empty()) known += ", ";
    known += kind.name;
  }
  return unsupported(fmt::format("tokenizer.ggml.pre is {}, supported are {}", quote(pre), known));
}

Status check_id(const std::optional<int32_t>& id, const char* what, size_t count) {
  if (!id || (*id >= 0 && static_cast<size_t>(*id) < count)) return {};
  return invalid_data(fmt::format("the {} token is {}, but the vocabulary has {} tokens", what, *id, count));
}

// The builder relies on valid UTF-8; a GGUF file may hold any bytes.
Status check_utf8(const BpeVocab& vocab) {
  const auto broken = [](const char* what, size_t i, const std::string& text) {
    return invalid_data(fmt::format("{} {} is {}, which is not UTF-8", what, i, quote(text)));
  };
  for (size_t i = 0; i < vocab.tokens.size(); ++i) {
    if (find_invalid_utf8(vocab.tokens[i])) return broken("token", i, vocab.tokens[i]);
  }
  for (size_t i = 0; i < vocab.merges.size(); ++i) {
    if (find_invalid_utf8(vocab.merges[i])) return broken("merge", i, vocab.merges[i]);
  }
  for (const AddedToken& token : vocab.added) {
    if (find_invalid_utf8(token.text)) return broken("added token", static_cast<size_t>(token.id), token.text);
  }
  return {};
}

Result<std::unique_ptr<const BpeModel>> build_model(const BpeVocab& vocab, bool ignore_merges) {
  HB_TRY(check_utf8(vocab));
  const size_t count = vocab.tokens.size();
  std::vector<bool> is_added(count, false);
  for (const AddedToken& token : vocab.added) {
    if (token.id < 0 || static_cast<size_t>(token.id) >= count) {
      return invalid_data(fmt::format("added token {} has the id {}, but the vocabulary has {} tokens",
                                      quote(token.text), token.id, count));
    }
    is_added[static_cast<size_t>(token.id)] = true;
  }
  size_t text_bytes = 0;
  for (const std::string& token : vocab.tokens) text_bytes += token.size();
  const bool scored = !vocab.scores.empty();
  BpeModel::Builder builder(scored ? BpeSpelling::kSentencePiece : BpeSpelling::kByteLevel);
  builder.reserve(count, vocab.merges.size(), text_bytes);
  for (size_t id = 0; id < count; ++id) {
    if (!is_added[id]) HB_TRY(builder.add_token(static_cast<int32_t>(id), vocab.tokens[id]));
  }
  for (const AddedToken& token : vocab.added) HB_TRY(builder.add_added_token(token.id, token.text));
  if (scored) HB_TRY(builder.add_scores(vocab.scores));
  for (size_t i = 0; i < vocab.merges.size() && !scored; ++i) {
    const std::string_view merge = vocab.merges[i];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos) {
      return invalid_data(fmt::format("merge {} is {}, expected two tokens with a space between", i, quote(merge)));
    }
    HB_TRY(builder.add_merge(merge.substr(0, space), merge.substr(space + 1)));
  }
  return builder.build({.unk_token = {},
                        .unk_id = scored ? vocab.unk : std::nullopt,
                        .fuse_unk = false,
                        .ignore_merges = ignore_merges});
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_vocab(BpeVocab vocab, const std::string& name) {
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  // SentencePiece has no pre-tokeniser: a name in the file means nothing.
  const bool sentencepiece = !vocab.scores.empty();
  Result<const PreKind*> kind = sentencepiece ? &kSentencePieceKind : find_kind(vocab.pre);
  if (!kind.ok()) return kind.status().with_context(name);
  if (vocab.tokens.size() > INT32_MAX) return invalid_data(name + ": the vocabulary has more than 2^31 tokens");
  for (const auto& [id, what] : {std::pair{vocab.bos, "beginning-of-sequence"},
                                 {vocab.eos, "end-of-sequence"},
                                 {vocab.unk, "unknown"},
                                 {vocab.pad, "padding"}}) {
    HB_TRY(check_id(id, what, vocab.tokens.size()).with_context(name));
  }
  auto model = build_model(vocab, (*kind)->ignore_merges);
  if (!model.ok()) return model.status().with_context(name);
  impl->model = std::move(model).value();
  HB_TRY((*kind)->build(impl->pretokenizer).with_context(name));
  impl->pre_tokenizer_name = (*kind)->name;
  impl->nfc = (*kind)->nfc;
  impl->sentencepiece = sentencepiece;
  impl->drops_first_space = sentencepiece && vocab.space_prefix;
  if (impl->drops_first_space) impl->space_prefix.where = SpacePrefix::Where::kEveryPart;
  impl->bos = vocab.bos;
  impl->eos = vocab.eos;
  if (vocab.add_bos && vocab.bos) impl->prefix = {*vocab.bos};
  if (vocab.add_eos && vocab.eos) impl->suffix = {*vocab.eos};
  std::vector<AddedTokenRule> rules;
  for (AddedToken& token : vocab.added)
    rules.push_back({.id = token.id, .text = std::move(token.text), .special = token.special});
  HB_TRY(impl->add_tokens(rules));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

}  // namespace halfbyte
