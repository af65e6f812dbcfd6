#include "quantize/export_tokenizer.h"

#include <nlohmann/json.hpp>
#include <unordered_set>

#include "base/quote.h"
#include "base/utf8.h"

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;

// The split of Qwen2 (and, with up to three digits in a group, of Llama 3), as their tokenizer.json give it.
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

Json split_then_bytes(const char* pattern) {
  const Json split = {
      {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", {split, byte_level(/*use_regex=*/false)}}};
}

struct PreRules {
  Json pre_tokenizer;
  bool nfc = false;
  bool ignore_merges = false;
};

// By llama.cpp's names; what a name means beside its pattern follows from the models that have it.
Result<PreRules> rules_of(const std::string& pre) {
  if (pre == "gpt-2" || pre == "phi-2") return PreRules{byte_level(/*use_regex=*/true)};
  if (pre == "smollm") {
    const Json digits = {{"type", "Digits"}, {"individual_digits", true}};
    return PreRules{{{"type", "Sequence"}, {"pretokenizers", {digits, byte_level(/*use_regex=*/true)}}}};
  }
  if (pre == "qwen2" || pre == "deepseek-r1-qwen") return PreRules{split_then_bytes(kQwen2Pattern), /*nfc=*/true};
  if (pre == "llama-bpe" || pre == "llama3" || pre == "llama-v3")
    return PreRules{split_then_bytes(kLlama3Pattern), /*nfc=*/false, /*ignore_merges=*/true};
  return unsupported(
      "the vocabulary has the pre-tokeniser " + quote(pre) +
      ", for which no tokenizer.json can be written; known: gpt-2, phi-2, smollm, qwen2, deepseek-r1-qwen, llama-bpe "
      "(llama3, llama-v3); "
      "copy the original model's tokenizer.json");
}

Json added_token(const TokenizerAddedToken& token) {
  return {{"id", token.id},  {"content", token.text}, {"single_word", false},    {"lstrip", false},
          {"rstrip", false}, {"normalized", false},   {"special", token.special}};
}

// $A with BOS in front and EOS behind as the vocabulary asks; null for neither.
Json post_processor(const GgufVocab& vocab) {
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  const auto add = [&](const std::optional<int32_t>& id, int type) {
    const std::string& text = vocab.tokens[static_cast<size_t>(*id)];
    tokens[text] = {{"id", text}, {"ids", {*id}}, {"tokens", {text}}};
    const Json item = {{"SpecialToken", {{"id", text}, {"type_id", type}}}};
    if (type == 0) single.push_back(item);
    pair.push_back(item);
  };
  const bool bos = vocab.add_bos && vocab.bos, eos = vocab.add_eos && vocab.eos;
  if (!bos && !eos) return nullptr;
  for (int type = 0; type < 2; ++type) {
    if (bos) add(vocab.bos, type);
    const Json text = {{"Sequence", {{"id", type == 0 ? "A" : "B"}, {"type_id", type}}}};
    if (type == 0) single.push_back(text);
    pair.push_back(text);
    if (eos) add(vocab.eos, type);
  }
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

Status check_texts(const GgufVocab& vocab) {
  std::unordered_set<std::string_view> seen;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const std::string& text = vocab.tokens[id];
    if (text.empty()) continue;
    if (find_invalid_utf8(text))
      return invalid_data("token " + std::to_string(id) + " is " + quote(text) + ", which is not UTF-8");
    if (!seen.insert(text).second)
      return invalid_data("token " + std::to_string(id) + " is " + quote(text) + ", as is an earlier one");
  }
  for (size_t i = 0; i < vocab.merges.size(); ++i) {
    if (find_invalid_utf8(vocab.merges[i]))
      return invalid_data("merge " + std::to_string(i) + " is " + quote(vocab.merges[i]) + ", which is not UTF-8");
  }
  return {};
}

}  // namespace

Result<std::string> make_tokenizer_json(const GgufVocab& vocab) {
  if (!vocab.scores.empty())
    return unsupported(
        "the vocabulary is SentencePiece's, for which no tokenizer.json is written; copy the original model's");
  HB_ASSIGN(const PreRules rules, rules_of(vocab.pre));
  HB_TRY(check_texts(vocab));
  Json added = Json::array();
  for (const TokenizerAddedToken& token : vocab.added) added.push_back(added_token(token));
  const Json model_head = {{"type", "BPE"},
                           {"dropout", nullptr},
                           {"unk_token", nullptr},
                           {"continuing_subword_prefix", nullptr},
                           {"end_of_word_suffix", nullptr},
                           {"fuse_unk", false},
                           {"byte_fallback", false},
                           {"ignore_merges", rules.ignore_merges}};
  const Json head = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", added},
                     {"normalizer", rules.nfc ? Json{{"type", "NFC"}} : Json(nullptr)},
                     {"pre_tokenizer", rules.pre_tokenizer},
                     {"post_processor", post_processor(vocab)},
                     {"decoder", byte_level(/*use_regex=*/true)}};
  // The large parts are appended as text: an ordered_json object of 150,000 members takes quadratic time. Added tokens
  // are in the vocabulary too, so that their ids are stated and not counted on from its end.
  std::string out = head.dump();
  out.back() = ',';
  out += "\"model\":" + model_head.dump();
  out.back() = ',';
  out += "\"vocab\":{";
  bool first = true;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (vocab.tokens[id].empty()) continue;  // an id without a text
    out += (first ? "" : ",") + Json(vocab.tokens[id]).dump() + ":" + std::to_string(id);
    first = false;
  }
  out += "},\"merges\":[";
  for (size_t i = 0; i < vocab.merges.size(); ++i) out += (i == 0 ? "" : ",") + Json(vocab.merges[i]).dump();
  return out + "]}}\n";
}

std::string make_tokenizer_config(const TokenizerSource& source, int64_t max_length) {
  Json out;
  if (source.add_bos_token) out["add_bos_token"] = *source.add_bos_token;
  if (source.add_eos_token) out["add_eos_token"] = *source.add_eos_token;
  Json added = Json::object();
  for (const TokenizerAddedToken& token : source.added_tokens) {
    Json entry = added_token(token);
    entry.erase("id");
    added[std::to_string(token.id)] = entry;
  }
  out["added_tokens_decoder"] = added;
  for (const auto& [key, text] : {std::pair{"bos_token", &source.bos_token},
                                  {"eos_token", &source.eos_token},
                                  {"pad_token", &source.pad_token},
                                  {"unk_token", &source.unk_token}}) {
    out[key] = text->empty() ? Json(nullptr) : Json(*text);
  }
  if (source.chat_templates.size() == 1 && source.chat_templates.front().name == "default") {
    out["chat_template"] = source.chat_templates.front().source;
  } else if (!source.chat_templates.empty()) {
    Json list = Json::array();
    for (const ChatTemplateText& text : source.chat_templates)
      list.push_back({{"name", text.name}, {"template", text.source}});
    out["chat_template"] = list;
  }
  out["clean_up_tokenization_spaces"] = false;
  out["model_max_length"] = max_length;
  out["tokenizer_class"] = "PreTrainedTokenizerFast";
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace halfbyte
