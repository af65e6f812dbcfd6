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

Status refuse(const JsonValue& part, std::string_view found, std::string_view supported) {
  return {StatusCode::kUnsupported,
          part.error(fmt::format("found {}, supported: {}", quote(found), supported)).message()};
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
  constexpr std::string_view kSupported = "\"BPE\" (byte-level)";
  if (const auto type = model.find_set("type")) {
    HB_ASSIGN(const std::string_view name, type->as_string());
    if (name != "BPE") return refuse(*type, name, kSupported);
  } else if (!model.find("merges")) {
    return refuse(model, "a model without a type and without merges", kSupported);
  }
  HB_ASSIGN(const bool byte_fallback, flag(model, "byte_fallback", false));
  if (byte_fallback) return refuse(model, "byte_fallback (a SentencePiece vocabulary)", kSupported);
  if (const auto dropout = model.find_set("dropout")) {
    HB_ASSIGN(const double rate, dropout->as_double());
    if (rate != 0) return refuse(*dropout, "a dropout above 0", "null");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const auto affix = model.find_set(key);
    if (!affix) continue;
    HB_ASSIGN(const std::string_view text, affix->as_string());
    if (!text.empty()) return refuse(*affix, text, "none");
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
Status read_merge(const JsonValue& merge, BpeModel::Builder& builder) {
  if (merge.is_string()) {
    HB_ASSIGN(const std::string_view text, merge.as_string());
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return merge.error(fmt::format("found {}, expected two tokens with a space between", quote(text)));
    }
    return builder.add_merge(text.substr(0, space), text.substr(space + 1));
  }
  HB_ASSIGN(const auto pair, merge.elements());
  if (pair.size() != 2) return merge.error(fmt::format("found {} tokens, expected 2", pair.size()));
  HB_ASSIGN(const std::string_view left, pair[0].as_string());
  HB_ASSIGN(const std::string_view right, pair[1].as_string());
  return builder.add_merge(left, right);
}

Result<std::unique_ptr<const BpeModel>> read_model(const JsonValue& root, size_t json_bytes,
                                                   const std::vector<AddedTokenRule>& added) {
  HB_ASSIGN(const JsonValue model, root.at("model"));
  HB_ASSIGN(const auto options, read_model_options(model));
  HB_ASSIGN(const JsonValue vocab, model.at("vocab"));
  if (!vocab.is_object()) return vocab.error("expected an object from token to id, as BPE models have");
  HB_ASSIGN(const auto tokens, vocab.members());
  HB_ASSIGN(const JsonValue merge_list, model.at("merges"));
  HB_ASSIGN(const auto merges, merge_list.elements());
  const auto in_model = [&](Status status) {
    return status.ok() ? status : Status(status.code(), model.error(status.message()).message());
  };
  BpeModel::Builder builder;
  builder.reserve(tokens.size() + added.size(), merges.size(), json_bytes / 4);
  for (const auto& [text, id] : tokens) {
    HB_ASSIGN(const int64_t value, id.as_int(0, INT32_MAX - 1));
    HB_TRY(in_model(builder.add_token(static_cast<int32_t>(value), text)));
  }
  for (const AddedTokenRule& token : added) HB_TRY(in_model(builder.add_added_token(token.id, token.text)));
  for (const JsonValue& merge : merges) HB_TRY(in_model(read_merge(merge, builder)));
  auto built = builder.build(options);
  if (!built.ok()) return in_model(built.status());
  return built;
}

Status read_normalizer(const JsonValue& part, bool& nfc) {
  HB_ASSIGN(const std::string_view type, type_of(part));
  if (type == "NFC") {
    nfc = true;
    return {};
  }
  if (type != "Sequence") return refuse(part, type, "NFC, Sequence of these, or none");
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
    if (byte_level) return refuse(part, type, "ByteLevel as the last part");
    if (type == "ByteLevel") return read_byte_level(part);
    if (type == "Split") return read_split(part);
    if (type == "Digits") {
      HB_ASSIGN(const bool individual, flag(part, "individual_digits", false));
      stages.add(make_digits_splitter(individual));
      ++count;
      return {};
    }
    return refuse(part, type, "ByteLevel, Split, Digits and Sequence of these");
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
    if (how != "Isolated" && how != "Removed") return refuse(behavior, how, "Isolated, Removed");
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
      if (which != "A" || seen_text) return refuse(id, which, "the sequence A once");
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
  if (type != "Sequence") return refuse(part, type, "ByteLevel, TemplateProcessing, Sequence of these, or none");
  HB_ASSIGN(const JsonValue list, part.at("processors"));
  HB_ASSIGN(const auto parts, list.elements());
  for (const JsonValue& p : parts) HB_TRY(read_post_processor(p, prefix, suffix));
  return {};
}

Status check_decoder(const JsonValue& part) {
  HB_ASSIGN(const std::string_view type, type_of(part));
  if (type == "ByteLevel") return {};
  if (type != "Sequence") return refuse(part, type, "ByteLevel");
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

Result<std::shared_ptr<const Tokenizer>> Tokenizer::from_tokenizer_json(std::string_view json,
                                                                        const std::string& name) {
  HB_ASSIGN(const auto document, JsonDocument::parse(json, name));
  const JsonValue root = document->root();
  HB_ASSIGN(const std::vector<AddedTokenRule> added, read_added_tokens(root));
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  HB_ASSIGN(impl->model, read_model(root, json.size(), added));
  if (const auto normalizer = root.find_set("normalizer")) HB_TRY(read_normalizer(*normalizer, impl->nfc));
  PreTokenizerReader pre;
  if (const auto part = root.find_set("pre_tokenizer")) HB_TRY(pre.read(*part));
  if (!pre.byte_level) return refuse(root, "a pre_tokenizer without ByteLevel", "byte-level BPE");
  impl->pretokenizer = std::move(pre.stages);
  impl->add_prefix_space = pre.add_prefix_space;
  impl->pre_tokenizer_name = display_name(impl->pretokenizer.name());
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
  if (const auto part = root.find_set("decoder")) HB_TRY(check_decoder(*part));
  HB_TRY(impl->add_tokens(added));
  return std::shared_ptr<const Tokenizer>(new Tokenizer(std::move(impl)));
}

}  // namespace halfbyte
