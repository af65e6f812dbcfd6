// Tokenizers from a Hugging Face tokenizer.json (the file of the tokenizers library). Everything in it that changes ids
// is either done as that library does it or refused by name.
#include <fmt/format.h>

#include <utility>

#include "base/json.h"
#include "base/quote.h"
#include "text/tokenizer_core.h"

namespace halfbyte {
namespace {

// The "type" of a pipeline part.
Result<std::string_view> type_of(const JsonValue& part) {
  HB_ASSIGN(const JsonValue type, part.at("type"));
  return type.as_string();
}

Result<bool> flag(const JsonValue& object, std::string_view key, bool otherwise) {
  const std::optional<JsonValue> value = object.find_set(key);
  if (!value) return otherwise;
  return value->as_bool();
}

// `found` in our words; text of the file goes in by quote().
Status refuse(const JsonValue& part, std::string_view found, std::string_view supported) {
  return {StatusCode::kUnsupported, part.error(fmt::format("found {}, supported: {}", found, supported)).message()};
}

Result<std::vector<AddedTokenRule>> read_added_tokens(const JsonValue& root) {
  std::vector<AddedTokenRule> rules;
  const std::optional<JsonValue> list = root.find_set("added_tokens");
  if (!list) return rules;
  HB_ASSIGN(const auto tokens, list->elements());
  for (const JsonValue& token : tokens) {
    AddedTokenRule rule;
    HB_ASSIGN(const JsonValue id, token.at("id"));
    HB_ASSIGN(const int64_t value, id.as_int(0, INT32_MAX - 1));
    rule.id = static_cast<int32_t>(value);
    HB_ASSIGN(const JsonValue content, token.at("content"));
    HB_ASSIGN(rule.text, content.as_string());
    HB_ASSIGN(rule.special, flag(token, "special", false));
    HB_ASSIGN(rule.single_word, flag(token, "single_word", false));
    HB_ASSIGN(rule.lstrip, flag(token, "lstrip", false));
    HB_ASSIGN(rule.rstrip, flag(token, "rstrip", false));
    HB_ASSIGN(rule.normalized, flag(token, "normalized", !rule.special));
    rules.push_back(std::move(rule));
  }
  return rules;
}

// What the model section has beside vocabulary and merges.
Result<BpeModel::Builder::Options> read_model_options(const JsonValue& model) {
  constexpr std::string_view kSupported = "\"BPE\" (byte-level, or with byte_fallback)";
  if (const auto type = model.find_set("type")) {
    HB_ASSIGN(const std::string_view name, type->as_string());
    if (name != "BPE") return refuse(*type, quote(name), kSupported);
  } else if (!model.find("merges")) {
    if (!model.is_object()) return model.error("expected an object");
    return refuse(model, "a model without a type and without merges", kSupported);
  }
  if (const auto dropout = model.find_set("dropout")) {
    HB_ASSIGN(const double rate, dropout->as_double());
    if (rate != 0) return refuse(*dropout, "a dropout above 0", "null");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto affix = model.find_set(key);
    if (!affix) continue;
    HB_ASSIGN(const std::string_view text, affix->as_string());
    if (!text.empty()) return refuse(*affix, quote(text), "none");
  }
  BpeModel::Builder::Options options;
  if (const auto unk = model.find_set("unk_token")) {
    HB_ASSIGN(const std::string_view text, unk->as_string());
    options.unk_token = std::string(text);
  }
  HB_ASSIGN(options.fuse_unk, flag(model, "fuse_unk", false));
  HB_ASSIGN(options.ignore_merges, flag(model, "ignore_merges", false));
  return options;
}

// A merge is ["a", "b"], or in older files "a b".
Result<std::pair<std::string_view, std::string_view>> read_merge(const JsonValue& merge) {
  if (merge.is_string()) {
    HB_ASSIGN(const std::string_view text, merge.as_string());
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return merge.error(fmt::format("found {}, expected two tokens with a space between", quote(text)));
    }
    return std::pair(text.substr(0, space), text.substr(space + 1));
  }
  HB_ASSIGN(const auto pair, merge.elements());
  if (pair.size() != 2) return merge.error(fmt::format("found {} tokens, expected 2", pair.size()));
  HB_ASSIGN(const std::string_view left, pair[0].as_string());
  HB_ASSIGN(const std::string_view right, pair[1].as_string());
  return std::pair(left, right);
}

Result<std::unique_ptr<const BpeModel>> read_model(const JsonValue& model, size_t json_bytes,
                                                   const BpeModel::Builder::Options& options,
                                                   const std::vector<AddedTokenRule>& added, bool sentencepiece) {
  HB_ASSIGN(const JsonValue vocab, model.at("vocab"));
  if (!vocab.is_object()) return vocab.error("expected an object from token to id, as BPE models have");
  HB_ASSIGN(const auto tokens, vocab.members());
  HB_ASSIGN(const JsonValue merge_list, model.at("merges"));
  HB_ASSIGN(const auto merges, merge_list.elements());
  const auto in_model = [&](Status status) {
    return status.ok() ? status : Status(status.code(), model.error(status.message()).message());
  };
  BpeModel::Builder builder(sentencepiece ? BpeSpelling::kSentencePiece : BpeSpelling::kByteLevel);
  builder.reserve(tokens.size() + added.size(), merges.size(), json_bytes / 4);
  for (const auto& [text, id] : tokens) {
    HB_ASSIGN(const int64_t value, id.as_int(0, INT32_MAX - 1));
    HB_TRY(in_model(builder.add_token(static_cast<int32_t>(value), text)));
  }
  for (const AddedTokenRule& token : added) HB_TRY(in_model(builder.add_added_token(token.id, token.text)));
  for (const JsonValue& merge : merges) {
    HB_ASSIGN(const auto pair, read_merge(merge));
    HB_TRY(in_model(builder.add_merge(pair.first, pair.second)));
  }
  auto built = builder.build(options);
  if (!built.ok()) return in_model(built.status());
  return built;
}

// What makes SentencePiece's form of a text, and the text of its tokens: a normalizer of Prepend and Replace (Llama 2 as
// transformers first wrote it) or a pre_tokenizer of Metaspace (later), and a decoder that undoes it.
class SentencePieceReader {
 public:
  static constexpr std::string_view kMark = "\u2581";

  Status read_normalizer(const JsonValue& part) {
    HB_ASSIGN(const std::string_view type, type_of(part));
    if (type == "Sequence") return each(part, "normalizers", &SentencePieceReader::read_normalizer);
    if (type == "Prepend") {
      HB_TRY(expect(part, "prepend", kMark));
      prefix = {SpacePrefix::Where::kEveryPart, /*always=*/true};
      prepends = true;
      return {};
    }
    if (type == "Replace") {
      marks_spaces = true;
      return read_replace(part, " ", kMark);
    }
    return refuse(part, quote(type), "Prepend and Replace for a vocabulary with byte_fallback, or none");
  }

  Status read_pre_tokenizer(const JsonValue& part) {
    HB_ASSIGN(const std::string_view type, type_of(part));
    if (type != "Metaspace") return refuse(part, quote(type), "Metaspace or none for a vocabulary with byte_fallback");
    HB_TRY(expect(part, "replacement", kMark));
    HB_ASSIGN(const bool split, flag(part, "split", true));
    if (split) return refuse(part, "Metaspace that splits", "\"split\": false");
    HB_ASSIGN(const bool legacy, flag(part, "add_prefix_space", true));
    std::string_view scheme = legacy ? "always" : "never";
    if (const auto value = part.find_set("prepend_scheme")) {
      HB_ASSIGN(scheme, value->as_string());
    }
    if (scheme != "always" && scheme != "first" && scheme != "never")
      return refuse(part, quote(scheme), "always, first or never as prepend_scheme");
    if (scheme != "never")
      prefix = {scheme == "first" ? SpacePrefix::Where::kText : SpacePrefix::Where::kEveryPart, /*always=*/false};
    marks_spaces = true;
    return {};
  }

  Status read_decoder(const JsonValue& part) {
    HB_ASSIGN(const std::string_view type, type_of(part));
    if (type == "Sequence") return each(part, "decoders", &SentencePieceReader::read_decoder);
    if (type == "ByteFallback" || type == "Fuse") return {};
    if (type == "Replace") return read_replace(part, kMark, " ");
    if (type != "Strip")
      return refuse(part, quote(type), "Replace, ByteFallback, Fuse and Strip for a vocabulary with byte_fallback");
    HB_TRY(expect(part, "content", " "));
    HB_ASSIGN(const JsonValue start, part.at("start"));
    HB_ASSIGN(const JsonValue stop, part.at("stop"));
    HB_ASSIGN(const int64_t first, start.as_int(0, 1));
    HB_TRY(stop.as_int(0, 0).status());
    drops_first_space = first == 1;
    return {};
  }

  SpacePrefix prefix;
  bool marks_spaces = false;
  bool prepends = false;  // by the normalizer
  bool drops_first_space = false;

 private:
  Status each(const JsonValue& part, std::string_view key, Status (SentencePieceReader::*read)(const JsonValue&)) {
    HB_ASSIGN(const JsonValue list, part.at(key));
    HB_ASSIGN(const auto parts, list.elements());
    for (const JsonValue& p : parts) HB_TRY((this->*read)(p));
    return {};
  }

  static Status expect(const JsonValue& part, std::string_view key, std::string_view text) {
    HB_ASSIGN(const JsonValue value, part.at(key));
    HB_ASSIGN(const std::string_view found, value.as_string());
    return found == text ? Status() : refuse(value, quote(found), quote(text));
  }

  static Status read_replace(const JsonValue& part, std::string_view from, std::string_view to) {
    HB_ASSIGN(const JsonValue pattern, part.at("pattern"));
    HB_TRY(expect(pattern, "String", from));
    return expect(part, "content", to);
  }
};

Status read_normalizer(const JsonValue& part, bool& nfc) {
  HB_ASSIGN(const std::string_view type, type_of(part));
  if (type == "NFC") {
    nfc = true;
    return {};
  }
  if (type != "Sequence") return refuse(part, quote(type), "NFC, Sequence of these, or none");
  HB_ASSIGN(const JsonValue list, part.at("normalizers"));
  HB_ASSIGN(const auto parts, list.elements());
  for (const JsonValue& p : parts) HB_TRY(read_normalizer(p, nfc));
  return {};
}

// Collects the stages of a pre_tokenizer.
class PreTokenizerReader {
 public:
  Status read(const JsonValue& part) {
    HB_ASSIGN(const std::string_view type, type_of(part));
    if (type == "Sequence") {
      HB_ASSIGN(const JsonValue list, part.at("pretokenizers"));
      HB_ASSIGN(const auto parts, list.elements());
      for (const JsonValue& p : parts) HB_TRY(read(p));
      return {};
    }
    // Behind ByteLevel the text is in the byte-level alphabet, so that a later stage would see other characters.
    if (byte_level) return refuse(part, quote(type), "ByteLevel as the last part");
    if (type == "ByteLevel") return read_byte_level(part);
    if (type == "Split") return read_split(part);
    if (type == "Digits") {
      HB_ASSIGN(const bool individual, flag(part, "individual_digits", false));
      stages.add(make_digits_splitter(individual));
      ++count;
      return {};
    }
    return refuse(part, quote(type), "ByteLevel, Split, Digits and Sequence of these");
  }

  Pretokenizer stages;
  size_t count = 0;  // stages so far
  bool byte_level = false;
  bool add_prefix_space = false;

 private:
  Status read_byte_level(const JsonValue& part) {
    byte_level = true;
    HB_ASSIGN(add_prefix_space, flag(part, "add_prefix_space", true));
    if (add_prefix_space && count > 0) return refuse(part, "add_prefix_space after another part", "ByteLevel alone");
    HB_ASSIGN(const bool use_regex, flag(part, "use_regex", true));
    if (use_regex) stages.add(make_gpt2_splitter());
    ++count;
    return {};
  }

  Status read_split(const JsonValue& part) {
    RegexSplitOptions options;
    HB_ASSIGN(const JsonValue behavior, part.at("behavior"));
    HB_ASSIGN(const std::string_view how, behavior.as_string());
    if (how != "Isolated" && how != "Removed") return refuse(behavior, quote(how), "Isolated, Removed");
    options.remove_matches = how == "Removed";
    HB_ASSIGN(options.invert, flag(part, "invert", false));
    HB_ASSIGN(const JsonValue pattern, part.at("pattern"));
    options.literal = pattern.find("String").has_value();
    HB_ASSIGN(const JsonValue source, pattern.at(options.literal ? "String" : "Regex"));
    HB_ASSIGN(const std::string_view text, source.as_string());
    ++count;
    // The scanners' expressions match every character, so dropping the gaps (Removed, inverted) changes nothing.
    if (!options.literal && options.remove_matches == options.invert) {
      if (auto known = known_regex_splitter(text)) {
        stages.add(std::move(known));
        return {};
      }
    }
    auto splitter = make_regex_splitter(text, options);
    if (!splitter.ok()) {
      const Status why = splitter.status();
      return {why.code(), source.error(why.message()).message()};
    }
    stages.add(std::move(splitter).value());
    return {};
  }
};

// Ids that the post-processor puts around one text.
Status read_post_processor(const JsonValue& part, std::vector<int32_t>& prefix, std::vector<int32_t>& suffix);

Status read_template(const JsonValue& part, std::vector<int32_t>& prefix, std::vector<int32_t>& suffix) {
  HB_ASSIGN(const JsonValue single, part.at("single"));
  HB_ASSIGN(const auto items, single.elements());
  std::vector<int32_t> before, after;
  bool seen_text = false;
  for (const JsonValue& item : items) {
    if (const auto sequence = item.find("Sequence")) {
      HB_ASSIGN(const JsonValue id, sequence->at("id"));
      HB_ASSIGN(const std::string_view which, id.as_string());
      if (which != "A" || seen_text) return refuse(id, quote(which), "the sequence A once");
      seen_text = true;
      continue;
    }
    HB_ASSIGN(const JsonValue special, item.at("SpecialToken"));
    HB_ASSIGN(const JsonValue name, special.at("id"));
    HB_ASSIGN(const std::string_view key, name.as_string());
    HB_ASSIGN(const JsonValue table, part.at("special_tokens"));
    HB_ASSIGN(const JsonValue token, table.at(key));
    HB_ASSIGN(const JsonValue ids, token.at("ids"));
    HB_ASSIGN(const auto list, ids.elements());
    for (const JsonValue& id : list) {
      HB_ASSIGN(const int64_t value, id.as_int(0, INT32_MAX - 1));
      (seen_text ? after : before).push_back(static_cast<int32_t>(value));
    }
  }
  if (!seen_text) return single.error("the sequence A is missing");
  prefix.insert(prefix.begin(), before.begin(), before.end());
  suffix.insert(suffix.end(), after.begin(), after.end());
  return {};
}

Status read_post_processor(const JsonValue& part, std::vector<int32_t>& prefix, std::vector<int32_t>& suffix) {
  HB_ASSIGN(const std::string_view type, type_of(part));
  if (type == "ByteLevel") return {};  // changes offsets, not ids
  if (type == "TemplateProcessing") return read_template(part, prefix, suffix);
  if (type != "Sequence") return refuse(part, quote(type), "ByteLevel, TemplateProcessing, Sequence of these, or none");
  HB_ASSIGN(const JsonValue list, part.at("processors"));
  HB_ASSIGN(const auto parts, list.elements());
  for (const JsonValue& p : parts) HB_TRY(read_post_processor(p, prefix, suffix));
  return {};
}

Status check_decoder(const JsonValue& part) {
  HB_ASSIGN(const std::string_view type, type_of(part));
  if (type == "ByteLevel") return {};
  if (type != "Sequence") return refuse(part, quote(type), "ByteLevel");
  HB_ASSIGN(const JsonValue list, part.at("decoders"));
  HB_ASSIGN(const auto parts, list.elements());
  for (const JsonValue& p : parts) HB_TRY(check_decoder(p));
  return {};
}

// Known combinations go by their GGUF names.
std::string display_name(const std::string& stages) {
  return stages == "digits + gpt-2" ? "smollm" : stages;
}

}  // namespace

Status Tokenizer::Impl::read_byte_level(const JsonValue& root) {
  if (const auto normalizer = root.find_set("normalizer")) HB_TRY(read_normalizer(*normalizer, nfc));
  PreTokenizerReader pre;
  if (const auto part = root.find_set("pre_tokenizer")) HB_TRY(pre.read(*part));
  if (!pre.byte_level)
    return refuse(root, "a pre_tokenizer without ByteLevel", "byte-level BPE, or BPE with byte_fallback");
  pretokenizer = std::move(pre.stages);
  add_prefix_space = pre.add_prefix_space;
  pre_tokenizer_name = display_name(pretokenizer.name());
  if (const auto part = root.find_set("decoder")) return check_decoder(*part);
  return {};
}

Status Tokenizer::Impl::read_sentencepiece(const JsonValue& root, const std::vector<AddedTokenRule>& rules) {
  SentencePieceReader reader;
  if (const auto part = root.find_set("normalizer")) HB_TRY(reader.read_normalizer(*part));
  if (const auto part = root.find_set("pre_tokenizer")) HB_TRY(reader.read_pre_tokenizer(*part));
  if (const auto part = root.find_set("decoder")) HB_TRY(reader.read_decoder(*part));
  if (!reader.marks_spaces)
    return refuse(root, "byte_fallback without a part that marks spaces", "a Replace normalizer, or Metaspace");
  // The tokenizers package searches such a token with the mark in front of it.
  for (const AddedTokenRule& rule : rules)
    if (rule.normalized && reader.prepends && !rule.text.empty())
      return refuse(root, "the added token " + quote(rule.text) + ", which is searched in text with marks",
                    "\"normalized\": false beside a Prepend normalizer");
  space_prefix = reader.prefix;
  drops_first_space = reader.drops_first_space;
  pre_tokenizer_name = "sentencepiece";
  return {};
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_tokenizer_json(std::string_view json,
                                                                        const std::string& name) {
  HB_ASSIGN(const auto document, JsonDocument::parse(json, name));
  const JsonValue root = document->root();
  HB_ASSIGN(const std::vector<AddedTokenRule> added, read_added_tokens(root));
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  // SentencePiece's BPE; without it the vocabulary must be byte-level.
  HB_ASSIGN(const JsonValue model, root.at("model"));
  HB_ASSIGN(const auto options, read_model_options(model));
  HB_ASSIGN(impl->sentencepiece, flag(model, "byte_fallback", false));
  HB_TRY(impl->sentencepiece ? impl->read_sentencepiece(root, added) : impl->read_byte_level(root));
  HB_ASSIGN(impl->model, read_model(model, json.size(), options, added, impl->sentencepiece));
  if (const auto part = root.find_set("post_processor")) {
    HB_TRY(read_post_processor(*part, impl->prefix, impl->suffix));
  }
  for (const auto& ids : {impl->prefix, impl->suffix}) {
    for (const int32_t id : ids) {
      if (id >= impl->model->vocab_size()) {
        return root.error(fmt::format("post_processor: the token id {} is not in the vocabulary", id));
      }
    }
  }
  if (impl->prefix.size() == 1) impl->bos = impl->prefix[0];
  HB_TRY(impl->add_tokens(added));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

}  // namespace halfbyte
