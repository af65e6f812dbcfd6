// What run and trace share: from flags to a model that is ready to answer.
#include <fmt/format.h>

#include <climits>
#include <cstdint>
#include <cstdlib>
#include <random>

#include "base/greedy.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "chat/sampling_defaults.h"
#include "model/config.h"
#include "run.h"
#include "text_input.h"

namespace halfbyte::tools {
namespace {

void apply(const std::optional<double>& given, float& value) {
  if (given) value = static_cast<float>(*given);
}

// Refused as it was typed: 1e300 would be infinite as a float. What is no number is left to the option's own type.
CLI::Validator within(double low, double high) {
  return readable([low, high](const std::string& text) -> Result<double> {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    if (end == text.c_str() || *end != '\0' || (value >= low && value <= high)) return value;
    return invalid_argument(fmt::format("found {}, expected {:g} to {:g}", quote(text), low, high));
  });
}

// The maker's sampling, then the flags.
SamplingParams sampling_of(const RunOptions& options, const GenerationConfig& maker) {
  SamplingParams p = default_sampling(maker);
  // Asking for any way of drawing means drawing.
  const bool draws = options.top_p || options.top_k || options.min_p;
  if (draws && p.temperature == 0) p.temperature = 1.0f;
  apply(options.temperature, p.temperature);
  apply(options.top_p, p.top_p);
  apply(options.min_p, p.min_p);
  apply(options.repetition_penalty, p.repetition_penalty);
  apply(options.frequency_penalty, p.frequency_penalty);
  apply(options.presence_penalty, p.presence_penalty);
  if (options.top_k) p.top_k = *options.top_k;
  if (options.logprobs) p.logprobs = *options.logprobs;
  p.seed = options.seed ? *options.seed : std::random_device{}();
  return p;
}

Status load_engine(const std::string& path, ModelOptions options, int batch, Chat& chat) {
  HB_ASSIGN(chat.model, load_model(path, options));
  HB_ASSIGN(chat.engine, open_engine(path, options, chat.model, batch));
  HB_ASSIGN(chat.place, place_of(options, *chat.model));
  return {};
}

}  // namespace

Status check_prompt_options(const RunOptions& options) {
  if (options.raw && (!options.system.empty() || options.think)) {
    return invalid_argument("--raw sends the prompt as it is: --system, --think and --no-think have no place in it");
  }
  if (!options.prompt.empty() && !options.prompt_flag.empty() && !from_environment("HALFBYTE_PROMPT")) {
    return invalid_argument("the prompt is given twice: as an argument and with --prompt");
  }
  for (const auto& [flag, text] :
       {std::pair("--system", &options.system), std::pair("--prompt", &options.prompt_flag)}) {
    if (const auto at = find_invalid_utf8(*text))
      return invalid_argument(fmt::format("{} is not UTF-8 at byte {}", flag, *at));
  }
  return {};
}

Result<Chat> open_chat(const RunOptions& options, int batch) {
  HB_ASSIGN(const std::string path, model_path(options.model.model));
  Chat chat;
  HB_ASSIGN(chat.text, open_text_model(path));
  if (!options.raw) {
    HB_TRY(check_template(chat.text, path));
    if (options.think && !chat.text.template_reads_thinking) {
      return invalid_argument(fmt::format("{}: the model's chat template has no switch for thinking; leave out {}",
                                          path, *options.think ? "--think" : "--no-think"));
    }
  }
  if (options.think) chat.render.kwargs_json = {{"enable_thinking", *options.think ? "true" : "false"}};
  chat.system = options.system;
  HB_TRY(read_size(options.max_tokens, "--max-tokens", chat.completion.max_tokens));
  HB_TRY(read_size(options.think_budget, "--think-budget", chat.completion.thinking_budget));
  chat.completion.stops = options.stop;
  chat.completion.stop_on_loop = options.length.stop_on_loop;
  HB_TRY(load_engine(path, options.model, batch, chat));
  chat.completion.sampling = sampling_of(options, chat.model->config().generation);
  HB_TRY(set_marker_penalty(options.length, *chat.model, chat.text, chat.completion.sampling));
  HB_ASSIGN(ChosenPolicy chosen, choose_policy(options.policy, *chat.model, options.temperature.has_value()));
  chat.completion.sampling.policy = chosen.policy;
  chat.completion.sampling.entropy = options.entropy;
  chat.policy_source = chosen.source;
  return chat;
}

Result<Prompt> make_prompt(const Chat& chat, const RunOptions& options, const std::string& text) {
  if (options.raw) return raw_prompt(chat.text, text);
  std::vector<ChatMessage> messages;
  if (!chat.system.empty()) messages.push_back({.role = "system", .content = chat.system});
  messages.push_back({.role = "user", .content = text});
  return chat_prompt(chat.text, messages, chat.render);
}

Result<std::optional<std::string>> given_prompt(const RunOptions& options) {
  std::string text = options.prompt_flag;
  if (!options.prompt.empty()) {
    text = fmt::format("{}", fmt::join(options.prompt, " "));
    if (text.empty()) return invalid_argument("the prompt is empty; write one, or leave it out to pipe one in");
  }
  if (text.empty() && !stdin_is_terminal()) {
    HB_ASSIGN(text, read_stdin_text());
    if (!text.empty() && text.back() == '\n') text.pop_back();
    if (text.empty())
      return explain_missing_model(
          options.model.model, "--prompt",
          invalid_argument("there is no prompt: stdin is empty; give one as an argument or pipe one in"));
  }
  if (text.empty()) return std::optional<std::string>();
  if (const auto at = find_invalid_utf8(text)) {
    return invalid_argument(
        fmt::format("the prompt is not valid UTF-8: byte {} is 0x{:02x}", *at, static_cast<unsigned char>(text[*at])));
  }
  return std::optional<std::string>(std::move(text));
}

Result<Chat> open_chat_of(const RunOptions& options) {
  auto chat = open_chat(options);
  if (!chat.ok() && chat.status().code() == StatusCode::kNotFound)
    return explain_missing_model(options.model.model, "--prompt", chat.status());
  return chat;
}

bool warns_of_stdin(const RunOptions& options) {
  return !options.quiet && (!options.prompt.empty() || !options.prompt_flag.empty());
}

std::string sampling_line(const Chat& chat) {
  const SamplingParams& p = chat.completion.sampling;
  // A greedy answer needs no seed.
  const bool greedy = p.policy.rule == TemperatureRule::kFixed && p.temperature <= kGreedyTemperature;
  return drawing_text(p, chat.policy_source) + (greedy ? "" : fmt::format(", seed {}", p.seed));
}

void add_sampling_flags(Flags& flags, RunOptions& o) {
  flags.option("--temperature", o.temperature, "0 is greedy (default: generation_config.json's, or greedy)")
      ->check(within(0, 100));
  flags.option("--top-p", o.top_p, "Draw from the most likely tokens that make up this probability")
      ->check(within(0, 1));
  flags.option("--top-k", o.top_k, "Draw from so many tokens; 0: off")->check(whole_number(0, INT_MAX));
  flags.option("--min-p", o.min_p, "Draw from tokens at least this likely, relative to the most likely one")
      ->check(within(0, 1));
  flags.option("--repetition-penalty", o.repetition_penalty, "Of tokens in prompt and answer; 1: off")
      ->check(within(1e-3, 1e3));
  flags.option("--frequency-penalty", o.frequency_penalty, "For each occurrence in the answer; 0: off")
      ->check(within(-2, 2));
  flags.option("--presence-penalty", o.presence_penalty, "Once for each token of the answer; 0: off")
      ->check(within(-2, 2));
  flags.option("--seed", o.seed, "Same seed, same answer (default: a random one, which --json and the table show)")
      ->check(whole_number(0, UINT64_MAX));
  flags.option("--max-tokens", o.max_tokens, "Most tokens of an answer, e.g. 512 or 4K (default: the context left)");
  flags.option("--stop", o.stop, "A text that ends the answer; may be given several times")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_length_flags(flags, o.length);
  add_policy_flags(flags, o.policy);
}

void add_prompt_flags(Flags& flags, RunOptions& options) {
  flags.option("-p,--prompt", options.prompt_flag, "The PROMPT, where no MODEL is named");
  flags.text("--system", options.system, "System message");
  flags.either("--think,!--no-think", options.think, "Switch the model's reasoning on or off, where its template can");
  flags.option("--think-budget", options.think_budget,
               "Most tokens of reasoning, e.g. 512 or 4K; then the model is made to answer");
  flags.flag("--raw", options.raw, "Send the prompt as it is, without the chat template");
}

}  // namespace halfbyte::tools
