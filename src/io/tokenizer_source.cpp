#include "io/tokenizer_source.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "base/json.h"
#include "io/gguf.h"
#include "io/hf_config.h"
#include "io/locate.h"
#include "io/mapping_guard.h"
#include "io/message.h"
#include "io/read_file.h"

namespace halfbyte {
namespace {

// "text" or {"content": "text", ...}; null means none.
Status read_token(const JsonValue& root, std::string_view key, std::string& out) {
  auto value = root.find_set(key);
  if (!value) return {};
  if (value->is_object()) {
    HB_ASSIGN(value, value->at("content"));
  }
  HB_ASSIGN(const std::string_view text, value->as_string());
  out = std::string(text);
  return {};
}

Status read_flag(const JsonValue& root, std::string_view key, std::optional<bool>& out) {
  if (const auto value = root.find_set(key)) {
    HB_ASSIGN(out, value->as_bool());
  }
  return {};
}

// A string, or a list of {"name", "template"}.
Status read_templates(const JsonValue& root, std::vector<ChatTemplateText>& out) {
  const auto value = root.find_set("chat_template");
  if (!value) return {};
  if (!value->is_array()) {
    HB_ASSIGN(const std::string_view text, value->as_string());
    out.push_back({"default", std::string(text)});
    return {};
  }
  HB_ASSIGN(const auto items, value->elements());
  for (const JsonValue& item : items) {
    HB_ASSIGN(const JsonValue name_value, item.at("name"));
    HB_ASSIGN(const JsonValue text_value, item.at("template"));
    HB_ASSIGN(const std::string_view name, name_value.as_string());
    HB_ASSIGN(const std::string_view text, text_value.as_string());
    out.push_back({std::string(name), std::string(text)});
  }
  return {};
}

// {"151643": {"content": "<|endoftext|>", "special": true, ...}, ...}
Status read_added_tokens(const JsonValue& root, std::vector<TokenizerAddedToken>& out) {
  const auto value = root.find_set("added_tokens_decoder");
  if (!value) return {};
  HB_ASSIGN(const auto members, value->members());
  for (const auto& [key, item] : members) {
    TokenizerAddedToken token;
    const auto [end, failure] = std::from_chars(key.data(), key.data() + key.size(), token.id);
    if (failure != std::errc() || end != key.data() + key.size() || token.id < 0 || token.id > INT32_MAX) {
      return value->error("has the key " + quote(key) + ", expected a token id");
    }
    HB_ASSIGN(const JsonValue content, item.at("content"));
    HB_ASSIGN(const std::string_view text, content.as_string());
    token.text = std::string(text);
    if (const auto special = item.find_set("special")) {
      HB_ASSIGN(token.special, special->as_bool());
    }
    out.push_back(std::move(token));
  }
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  return {};
}

// Old tokenizers name their special tokens in special_tokens_map.json only.
Status fill_special_tokens(const std::string& folder, TokenizerSource& source) {
  const std::string path = join_path(folder, "special_tokens_map.json");
  HB_ASSIGN(const auto text, read_small_file(path));
  if (!text) return {};
  HB_ASSIGN(const auto document, parse_model_json(*text, shown(path)));
  for (const auto& [key, token] : {std::pair{"bos_token", &source.bos_token},
                                   {"eos_token", &source.eos_token},
                                   {"pad_token", &source.pad_token},
                                   {"unk_token", &source.unk_token}}) {
    if (token->empty()) HB_TRY(read_token(document->root(), key, *token));
  }
  return {};
}

Result<TokenizerSource> open_folder(const std::string& folder) {
  TokenizerSource source;
  const std::string path = join_path(folder, "tokenizer_config.json");
  HB_ASSIGN(const auto config, read_small_file(path));
  if (config) {
    HB_ASSIGN(source, parse_tokenizer_config(*config, shown(path)));
  }
  HB_TRY(fill_special_tokens(folder, source));
  HB_ASSIGN(auto jinja, read_small_file(join_path(folder, "chat_template.jinja")));
  if (jinja) {
    std::erase_if(source.chat_templates, [](const auto& t) { return t.name == "default"; });
    source.chat_templates.insert(source.chat_templates.begin(), {"default", std::move(*jinja)});
  }
  source.path = folder;
  source.tokenizer_json_path = join_path(folder, "tokenizer.json");
  std::error_code failure;
  if (!std::filesystem::is_regular_file(source.tokenizer_json_path, failure)) {
    HB_TRY(refuse_dangling_link(source.tokenizer_json_path));
    if (std::filesystem::exists(source.tokenizer_json_path, failure))
      return invalid_data(shown(source.tokenizer_json_path) + ": is not a regular file");
    // A folder that is no model, or a model that cannot run, is told so rather than that it lacks a tokenizer.
    HB_TRY(read_hf_config(folder).status());
    return not_found(
        shown(folder) + ": has no tokenizer.json; there: " + listed(folder_entries(folder)) +
        "; save the tokenizer in the fast format (AutoTokenizer.from_pretrained(...).save_pretrained(...))");
  }
  return source;
}

}  // namespace

const ChatTemplateText* TokenizerSource::chat_template(std::string_view name) const {
  for (const ChatTemplateText& text : chat_templates) {
    if (text.name == name) return &text;
  }
  return nullptr;
}

Result<TokenizerSource> parse_tokenizer_config(std::string_view json, const std::string& file) {
  HB_ASSIGN(const auto document, parse_model_json(json, file));
  const JsonValue root = document->root();
  HB_TRY(root.members().status());
  TokenizerSource source;
  HB_TRY(read_templates(root, source.chat_templates));
  HB_TRY(read_token(root, "bos_token", source.bos_token));
  HB_TRY(read_token(root, "eos_token", source.eos_token));
  HB_TRY(read_token(root, "pad_token", source.pad_token));
  HB_TRY(read_token(root, "unk_token", source.unk_token));
  HB_TRY(read_flag(root, "add_bos_token", source.add_bos_token));
  HB_TRY(read_flag(root, "add_eos_token", source.add_eos_token));
  HB_TRY(read_added_tokens(root, source.added_tokens));
  if (const auto length = root.find_set("model_max_length")) {
    HB_ASSIGN(const double tokens, length->as_double());  // transformers writes 1e30 for "no limit"
    if (tokens >= 1 && tokens <= 1e12) source.model_max_length = static_cast<int64_t>(tokens);
  }
  return source;
}

Result<TokenizerSource> open_tokenizer_source(const std::string& path) {
  HB_ASSIGN(const Location location, locate(path));
  if (location.kind != Location::Kind::kGguf) return open_folder(location.folder);
  HB_ASSIGN(const auto mapped, open_guarded(location.files.front()));
  HB_ASSIGN(const GgufFile file, GgufFile::parse(mapped->bytes(), shown(location.files.front())));
  HB_ASSIGN(TokenizerSource source, gguf_tokenizer_source(file));
  source.path = path;
  return source;
}

}  // namespace halfbyte
