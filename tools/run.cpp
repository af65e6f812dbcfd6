#include "run.h"

#include <fmt/format.h>

#include <climits>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>

#include "base/utf8.h"
#include "chat/sampling_defaults.h"
#include "json_text.h"
#include "model/config.h"
#include "text/tokenizer.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

void apply(const std::optional<double>& given, float& value) {
  if (given) value = static_cast<float>(*given);
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

Status check_options(const RunOptions& options) {
  if (options.logprobs && !options.json) return invalid_argument("--logprobs needs --json, which has a place for them");
  if (options.raw && (!options.system.empty() || options.think != 0)) {
    return invalid_argument("--raw sends the prompt as it is: --system, --think and --no-think have no place in it");
  }
  if (options.reasoning != "auto" && options.reasoning != "show" && options.reasoning != "hide") {
    return invalid_argument(fmt::format("--reasoning is '{}', expected auto, show or hide", options.reasoning));
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

// Model and engine. With --device auto a model that a CUDA device's kernels do not have runs on the CPU, and says so.
Status load_engine(const std::string& path, const ModelOptions& options, Chat& chat) {
  HB_ASSIGN(chat.model, load_model(path, options));
  auto engine = make_engine(chat.model, options, 1);
  if (engine.ok()) {
    chat.engine = std::move(engine).value();
    return {};
  }
  const bool may_fall_back = options.device == "auto" && engine.status().code() == StatusCode::kUnsupported;
  if (!may_fall_back || chosen_device(options).value() != "cuda") return engine.status();
  note("on the CPU: " + engine.status().message());
  ModelOptions on_cpu = options;
  on_cpu.device = "cpu";
  return load_engine(path, on_cpu, chat);
}

Result<Chat> open_chat(const RunOptions& options) {
  HB_ASSIGN(const std::string path, model_path(options.model.model));
  Chat chat;
  HB_ASSIGN(chat.text, open_text_model(path));
  if (!options.raw) {
    HB_TRY(chat.text.template_status);
    if (options.think != 0 && !chat.text.template_reads_thinking) {
      return invalid_argument(fmt::format("{}: the model's chat template has no switch for thinking; leave out {}",
                                          path, options.think > 0 ? "--think" : "--no-think"));
    }
  }
  if (options.think != 0) chat.render.kwargs_json = {{"enable_thinking", options.think > 0 ? "true" : "false"}};
  chat.system = options.system;
  HB_TRY(read_size(options.max_tokens, "--max-tokens", chat.completion.max_tokens));
  chat.completion.stops = options.stop;
  HB_TRY(load_engine(path, options.model, chat));
  chat.completion.sampling = sampling_of(options, chat.model->config().generation);
  return chat;
}

Result<Prompt> make_prompt(const Chat& chat, const RunOptions& options, const std::string& text) {
  if (options.raw) return raw_prompt(chat.text, text);
  std::vector<ChatMessage> messages;
  if (!chat.system.empty()) messages.push_back({.role = "system", .content = chat.system});
  messages.push_back({.role = "user", .content = text});
  return chat_prompt(chat.text, messages, chat.render);
}

Json logprobs_json(const TextModel& text, const std::vector<TokenEvent>& events) {
  const auto entry = [&](const TokenLogprob& t) {
    const std::string bytes(text.tokenizer->token_bytes(t.token));
    return Json{{"id", t.token}, {"token", bytes}, {"logprob", t.logprob}};
  };
  Json out = Json::array();
  for (const TokenEvent& e : events) {
    Json token = entry(e.logprob.value_or(TokenLogprob{e.token, 0}));
    token["top"] = Json::array();
    for (const TokenLogprob& t : e.top) token["top"].push_back(entry(t));
    out.push_back(std::move(token));
  }
  return out;
}

std::string result_json(const Chat& chat, const Completion& c) {
  Json out;
  out["model"] = chat.model->summary().path;
  out["plan"] = chat.model->plan().preset;
  out["prompt_tokens"] = c.prompt_tokens;
  out["completion_tokens"] = c.token_ids.size();
  out["reasoning_tokens"] = c.reasoning_tokens;
  out["text"] = c.text;
  out["reasoning"] = c.reasoning;
  out["token_ids"] = c.token_ids;
  out["finish_reason"] = finish_reason_name(c.finish);
  out["seed"] = chat.completion.sampling.seed;
  out["timing"] = {{"load_s", chat.model->summary().load_seconds},
                   {"prefill_s", c.timing.prefill_s},
                   {"decode_s", c.timing.decode_s},
                   {"prefill_tokens_per_s", c.timing.prefill_tokens_per_s},
                   {"decode_tokens_per_s", c.timing.decode_tokens_per_s}};
  if (chat.completion.sampling.logprobs >= 0) out["logprobs"] = logprobs_json(chat.text, c.events);
  return json_text(out);
}

bool shows_reasoning(const RunOptions& options) {
  return options.reasoning == "show" || (options.reasoning == "auto" && stdout_is_terminal());
}

int run_once(Chat& chat, const RunOptions& options, const std::string& text) {
  const auto prompt = make_prompt(chat, options, text);
  if (!prompt.ok()) return fail(prompt.status());
  AnswerPrinter printer(shows_reasoning(options), stdout_has_color());
  bool readers_left = true;
  const auto completion = complete(*chat.engine, chat.text, *prompt, chat.completion, [&](const OutputDelta& delta) {
    hold_interrupts();  // what is printed ends with a whole line
    if (!options.json) readers_left = printer.print(delta) && readers_left;
    return readers_left && !interrupted();
  });
  if (!completion.ok()) {
    if (!options.json) printer.finish();
    return fail(completion.status());
  }
  if (options.json && completion->finish != FinishReason::kCancelled) {
    if (!write_out(result_json(chat, *completion))) return fail_output();
  }
  if (!options.json) printer.finish();
  if (!readers_left) return fail_output();
  if (options.verbose || (stderr_is_terminal() && !options.quiet)) print_err(rates_text(*completion) + "\n");
  return completion->finish == FinishReason::kCancelled ? end_interrupted() : kDone;
}

// The prompt of the command line or of a pipe; nothing: talk.
Result<std::optional<std::string>> given_prompt(const RunOptions& options) {
  std::string text = options.prompt_flag;
  if (!options.prompt.empty()) text = fmt::format("{}", fmt::join(options.prompt, " "));
  if (text.empty() && !stdin_is_terminal()) {
    text.assign(std::istreambuf_iterator<char>(std::cin), {});
    if (!text.empty() && text.back() == '\n') text.pop_back();
    if (text.empty())
      return invalid_argument("there is no prompt: stdin is empty; give one as an argument or pipe one in");
  }
  if (text.empty()) return std::optional<std::string>();
  if (const auto at = find_invalid_utf8(text)) {
    return invalid_argument(
        fmt::format("the prompt is not valid UTF-8: byte {} is 0x{:02x}", *at, static_cast<unsigned char>(text[*at])));
  }
  return std::optional<std::string>(std::move(text));
}

// A first argument that is no model may be a prompt.
Status explain_missing_model(const RunOptions& options, Status status) {
  std::error_code failure;
  const std::string& model = options.model.model;
  const bool looks_like_path = model.find(' ') == std::string::npos && model.find_first_of("/.") != std::string::npos;
  if (status.code() != StatusCode::kNotFound || looks_like_path || model.empty() ||
      std::filesystem::exists(model, failure))
    return status;
  return not_found(status.message() +
                   "; the first argument is the MODEL: to ask the default model, write --prompt \"...\"");
}

int run(const RunOptions& options) {
  if (const Status status = check_options(options); !status.ok()) return fail(status);
  const auto prompt = given_prompt(options);
  if (!prompt.ok()) return fail(prompt.status());
  if (!*prompt && options.json) return fail("--json needs a prompt: give one as an argument or pipe one in");
  auto chat = open_chat(options);
  if (!chat.ok()) return fail(explain_missing_model(options, chat.status()));
  if (options.verbose || (stderr_is_terminal() && !options.quiet)) {
    const SamplingParams& sampling = chat->completion.sampling;
    print_err(fmt::format("{}  {:<9} {}, seed {}\n", model_table(*chat->model, chat->engine->metrics().context),
                          "sampling", sampling_text(sampling), sampling.seed));
  }
  return *prompt ? run_once(*chat, options, **prompt) : run_interactive(*chat, options);
}

void add_sampling_flags(Flags& flags, RunOptions& o) {
  flags.option("--temperature", o.temperature, "0 is greedy (default: generation_config.json's, or greedy)");
  flags.option("--top-p", o.top_p, "Draw from the most likely tokens that make up this probability");
  flags.option("--top-k", o.top_k, "Draw from so many tokens; 0: off")->check(whole_number(0, INT_MAX));
  flags.option("--min-p", o.min_p, "Draw from tokens at least this likely, relative to the most likely one");
  flags.option("--repetition-penalty", o.repetition_penalty, "Of tokens in prompt and answer; 1: off");
  flags.option("--frequency-penalty", o.frequency_penalty, "For each occurrence in the answer; 0: off");
  flags.option("--presence-penalty", o.presence_penalty, "Once for each token of the answer; 0: off");
  flags.option("--seed", o.seed, "Same seed, same answer (default: a random one, which --json and the table show)")
      ->check(whole_number(0, UINT64_MAX));
  flags.option("--max-tokens", o.max_tokens, "Most tokens of an answer, e.g. 512 or 4K (default: the context left)");
  flags.option("--stop", o.stop, "A text that ends the answer; may be given several times")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
}

}  // namespace

bool AnswerPrinter::grey(bool on) {
  if (grey_ == on || !color_) return true;
  grey_ = on;
  return write_out(on ? "\033[90m" : "\033[0m");
}

bool AnswerPrinter::print(const OutputDelta& delta) {
  bool ok = true;
  if (show_reasoning_ && !delta.reasoning.empty()) {
    ok = grey(true) && write_out(delta.reasoning);
    wrote_reasoning_ = true;
    ends_line_ = delta.reasoning.back() == '\n';
  }
  if (!delta.answer.empty()) {
    if (wrote_reasoning_ && !wrote_answer_) ok = ok && write_out(ends_line_ ? "\n" : "\n\n");
    ok = ok && grey(false) && write_out(delta.answer);
    wrote_answer_ = true;
    ends_line_ = delta.answer.back() == '\n';
  }
  return ok;
}

bool AnswerPrinter::finish() {
  const bool ok = grey(false) && (ends_line_ || write_out("\n"));
  ends_line_ = true;
  return ok;
}

std::string rates_text(const Completion& c) {
  std::string text = fmt::format("{} prompt tokens in {:.2f} s ({:.1f}/s), {} tokens in {:.2f} s ({:.1f}/s)",
                                 c.prompt_tokens, c.timing.prefill_s, c.timing.prefill_tokens_per_s, c.token_ids.size(),
                                 c.timing.decode_s, c.timing.decode_tokens_per_s);
  if (c.reasoning_tokens > 0) text += fmt::format(", {} of them reasoning", c.reasoning_tokens);
  return text + fmt::format(", {}", finish_reason_name(c.finish));
}

Command add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  Flags flags(app);
  add_model_argument(flags, options->model);
  flags.words("PROMPT", options->prompt, "What to answer (default: stdin if it is a pipe, else a conversation)");
  flags.text("-p,--prompt", options->prompt_flag, "The same, without naming a model");
  flags.text("--system", options->system, "System message");
  app.add_flag("--think,!--no-think", options->think, "Switch the model's reasoning on or off, where its template can")
      ->envname("HALFBYTE_THINK");
  flags.option("--reasoning", options->reasoning, "Print the reasoning: show, hide, or auto: on a terminal");
  add_sampling_flags(flags, *options);
  flags.option("--logprobs", options->logprobs, "With --json: log-probability of each token and of the N most likely")
      ->check(whole_number(0, 20));
  flags.flag("--raw", options->raw, "Send the prompt as it is, without the chat template");
  flags.flag("--json", options->json, "One JSON object instead of text");
  flags.flag("-v,--verbose", options->verbose,
             "Print the model, the sampling and the rates, also when stderr is no terminal");
  flags.flag("-q,--quiet", options->quiet, "Print neither");
  options->model.device = "auto";
  add_device_flag(flags, options->model, "Where to run: cpu, cuda, or auto: a CUDA device where one can be used");
  add_load_flags(flags, options->model);
  add_context_flag(flags, options->model);
  return [options] { return run(*options); };
}

}  // namespace halfbyte::tools
