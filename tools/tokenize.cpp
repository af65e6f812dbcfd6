// halfbyte tokenize: the tokens of a text.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/quote.h"
#include "halfbyte/chat.h"
#include "json_text.h"
#include "model_options.h"
#include "text/tokenizer.h"
#include "text_input.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

struct TokenizeOptions {
  std::string model;
  std::vector<std::string> words;
  std::string text;
  bool text_given = false;  // by its flag, empty or not
  bool bos = false, user = false, chat = false, json = false;
};

Result<std::vector<int32_t>> encode(const TextModel& model, const TokenizeOptions& options, const std::string& text) {
  if (options.chat) {
    HB_ASSIGN(Prompt prompt, chat_prompt(model, {{.role = "user", .content = text}}));
    return prompt.tokens;
  }
  EncodeOptions encode;
  encode.special_tokens = !options.user;
  encode.add_bos = options.bos;
  if (!options.user) return model.tokenizer->encode(text, encode);
  const TextRun run{text, /*from_request=*/true};
  return model.tokenizer->encode_runs({&run, 1}, model.control_tokens);
}

std::string result_json(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  Json pieces = Json::array();
  for (const int32_t id : ids) pieces.push_back(std::string(tokenizer.token_bytes(id)));
  const Json out{{"ids", ids}, {"pieces", pieces}};
  // A piece that is a part of a character becomes U+FFFD.
  return json_text(out, /*indent=*/-1);
}

std::string result_table(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
  std::string out;
  for (const int32_t id : ids) {
    out +=
        fmt::format("{:>7}  {}{}\n", id, quote(tokenizer.token_bytes(id)), tokenizer.is_special(id) ? "  special" : "");
  }
  return out + counted(ids.size(), "token") + "\n";
}

int run(const TokenizeOptions& options) {
  if (options.bos && (options.user || options.chat)) return fail("--bos goes with neither --user nor --chat");
  if (options.user && options.chat)
    return fail("--user and --chat exclude each other: --chat reads the text as a user's");
  if (!options.words.empty() && options.text_given && !from_environment("HALFBYTE_TEXT"))
    return fail("the text is given twice: as an argument and with --text");
  std::string text = options.words.empty() ? options.text : fmt::format("{}", fmt::join(options.words, " "));
  const bool given = options.text_given || !options.words.empty();
  const auto explained = [&](Status status) {
    return explain_missing_model(options.model, "--text", std::move(status));
  };
  if (!given) {
    if (stdin_is_terminal())
      return fail(explained(invalid_argument("there is no text: give one as an argument or pipe one in")));
    auto read = read_stdin_text();
    if (!read.ok()) return fail(read.status());
    text = std::move(*read);
  }
  const auto path = model_path(options.model);
  if (!path.ok()) return fail(explained(path.status()));
  const auto model = open_text_model(*path);
  if (!model.ok())
    return fail(model.status().code() == StatusCode::kNotFound ? explained(model.status()) : model.status());
  const UnreadStdin unread("text", given);
  const auto ids = encode(*model, options, text);
  if (!ids.ok()) return fail(ids.status());
  const Tokenizer& tokenizer = *model->tokenizer;
  if (!write_out(options.json ? result_json(tokenizer, *ids) : result_table(tokenizer, *ids))) {
    return fail_output();
  }
  return kDone;
}

}  // namespace

Command add_tokenize(CLI::App& app) {
  auto options = std::make_shared<TokenizeOptions>();
  Flags flags(app);
  flags.option("MODEL", options->model, kModelHelp);
  flags.words("TEXT", options->words, "What to tokenise (default: stdin, to its last byte)");
  const CLI::Option* text = flags.text("--text", options->text, "The TEXT, where no MODEL is named");
  flags.flag("--bos", options->bos, "Add what the model puts before a text");
  flags.flag("--user", options->user, "As text of a request: control tokens in it are plain text");
  flags.flag("--chat", options->chat, "As a user's message in the model's chat template");
  flags.flag("--json", options->json, "{\"ids\": [...], \"pieces\": [...]}");
  return [options, text] {
    options->text_given = text->count() > 0;
    return run(*options);
  };
}

}  // namespace halfbyte::tools
