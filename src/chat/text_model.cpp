#include <algorithm>

#include "base/result.h"
#include "decode/marker_penalty.h"
#include "halfbyte/chat.h"
#include "io/mapping_guard.h"
#include "io/message.h"
#include "io/tokenizer_source.h"
#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/tokenizer.h"

namespace halfbyte {
namespace {

BpeVocab to_bpe_vocab(const GgufVocab& vocab) {
  BpeVocab out;
  out.tokens = vocab.tokens;
  out.merges = vocab.merges;
  out.scores = vocab.scores;
  out.space_prefix = vocab.space_prefix;
  for (const TokenizerAddedToken& t : vocab.added) out.added.push_back({static_cast<int32_t>(t.id), t.text, t.special});
  out.pre = vocab.pre;
  out.bos = vocab.bos;
  out.eos = vocab.eos;
  out.unk = vocab.unk;
  out.pad = vocab.pad;
  out.add_bos = vocab.add_bos;
  out.add_eos = vocab.add_eos;
  return out;
}

Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const TokenizerSource& source) {
  if (source.vocab) return Tokenizer::from_vocab(to_bpe_vocab(*source.vocab), shown(source.path));
  HB_ASSIGN(const auto file, open_guarded(source.tokenizer_json_path));
  const auto bytes = file->bytes();
  return Tokenizer::from_tokenizer_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                        shown(source.tokenizer_json_path));
}

std::vector<int32_t> control_tokens(const Tokenizer& tokenizer, std::string_view template_source) {
  std::vector<int32_t> ids;
  for (const AddedToken& t : tokenizer.added_tokens()) {
    if (t.special || template_source.find(t.text) != std::string_view::npos) ids.push_back(t.id);
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::shared_ptr<const StepClasses> step_classes(const Tokenizer& tokenizer) {
  auto classes = std::make_shared<StepClasses>(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view text = tokenizer.is_special(id) ? std::string_view() : tokenizer.token_bytes(id);
    uint8_t& c = (*classes)[static_cast<size_t>(id)];
    c = text.find("\n\n") != std::string_view::npos ? 2 : text == "\n" ? 1 : 0;
  }
  return classes;
}

constexpr std::string_view kWayOut = "; give the whole prompt yourself with --raw";

Status with_way_out(const Status& status) {
  return status.ok() ? status : Status(status.code(), status.message() + std::string(kWayOut));
}

}  // namespace

Result<TextModel> open_text_model(const std::string& path) {
  HB_ASSIGN(const TokenizerSource source, open_tokenizer_source(path));
  TextModel model;
  model.path = path;
  HB_ASSIGN(model.tokenizer, open_tokenizer(source));
  model.bos_token = source.bos_token;
  model.eos_token = source.eos_token;
  const ChatTemplateText* text = source.chat_template();
  if (text == nullptr) {
    model.template_status = not_found(shown(path) + ": the model has no chat template" + std::string(kWayOut));
  } else {
    auto parsed = ChatTemplate::parse(text->source, shown(path) + ": chat template");
    if (parsed.ok()) model.chat_template = *parsed;
    model.template_status = with_way_out(parsed.status());
    model.template_reads_thinking = text->source.find("enable_thinking") != std::string::npos;
  }
  model.step_classes = step_classes(*model.tokenizer);
  model.control_tokens = control_tokens(*model.tokenizer, text != nullptr ? text->source : std::string_view());
  return model;
}

Result<Prompt> chat_prompt(const TextModel& model, const std::vector<ChatMessage>& messages,
                           const ChatRenderOptions& options) {
  if (model.chat_template == nullptr) return model.template_status;
  ChatRenderOptions with_tokens = options;
  if (with_tokens.bos_token.empty()) with_tokens.bos_token = model.bos_token;
  if (with_tokens.eos_token.empty()) with_tokens.eos_token = model.eos_token;
  const auto rendered = model.chat_template->render(messages, with_tokens);
  // Messages that the template refuses are not the template's fault.
  if (!rendered.ok())
    return rendered.status().code() == StatusCode::kUnsupported ? with_way_out(rendered.status()) : rendered.status();
  const std::vector<RenderedPiece>& pieces = *rendered;
  std::vector<TextRun> runs;
  for (const RenderedPiece& p : pieces) runs.push_back({p.text, p.user});
  Prompt prompt;
  HB_ASSIGN(prompt.tokens, model.tokenizer->encode_runs(runs, model.control_tokens));
  prompt.text = rendered_text(pieces);
  if (prompt.tokens.empty()) return invalid_data(shown(model.path) + ": the chat template renders to an empty prompt");
  return prompt;
}

Result<Prompt> raw_prompt(const TextModel& model, std::string_view text) {
  EncodeOptions options;
  options.add_bos = true;
  Prompt prompt;
  HB_ASSIGN(prompt.tokens, model.tokenizer->encode(text, options));
  prompt.text = text;
  if (prompt.tokens.empty()) return invalid_argument("the prompt is empty");
  return prompt;
}

std::vector<int32_t> marker_tokens(const Model& model, const TextModel& text) {
  const Tokenizer& tokenizer = *text.tokenizer;
  const int64_t count = std::min<int64_t>(tokenizer.vocab_size(), model.summary().vocab);
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < count; ++id)
    if (!tokenizer.is_special(id) && is_marker(tokenizer.token_bytes(id))) ids.push_back(id);
  return ids;
}

std::string decode(const TextModel& text, std::span<const int32_t> tokens) {
  return detokenize(*text.tokenizer, tokens, /*skip_special=*/true);
}

}  // namespace halfbyte
