#include "run.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/quote.h"
#include "decode/loop_detector.h"
#include "json_text.h"
#include "model/plan_fields.h"
#include "text/tokenizer.h"
#include "text_input.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

Json logprobs_json(const TextModel& text, const std::vector<TokenEvent>& events) {
  const auto entry = [&](const TokenLogprob& t) {
    const std::string bytes(text.tokenizer->token_bytes(t.token));
    return Json{{"id", t.token}, {"token", bytes}, {"logprob", t.logprob}};
  };
  Json out = Json::array();
  for (const TokenEvent& e : events) {
    Json token = entry(e.logprob.value_or(TokenLogprob{e.token, 0}));
    if (e.forced) {
      token["logprob"] = nullptr;
      token["forced"] = true;
    }
    token["top"] = Json::array();
    for (const TokenLogprob& t : e.top) token["top"].push_back(entry(t));
    out.push_back(std::move(token));
  }
  return out;
}

Json policy_json(const Chat& chat) {
  const TemperaturePolicy& p = chat.completion.sampling.policy;
  return {{"rule", name_of(p.rule)},      {"tau0", p.tau0},     {"t_low", as_typed(p.t_low)},
          {"t_high", as_typed(p.t_high)}, {"window", p.window}, {"include_current", p.include_current},
          {"source", chat.policy_source}};
}

std::string result_json(const Chat& chat, const Completion& c) {
  Json out;
  out["model"] = chat.model->summary().path;
  out["plan"] = plan_to_text(chat.model->plan());
  out["device"] = chat.place.device;
  out["device_name"] = chat.place.name;
  out["kernels"] = chat.place.kernels;
  out["prompt_tokens"] = c.prompt_tokens;
  out["completion_tokens"] = c.token_ids.size();
  out["reasoning_tokens"] = c.reasoning_tokens;
  out["text"] = c.text;
  out["reasoning"] = c.reasoning;
  out["token_ids"] = c.token_ids;
  out["finish_reason"] = finish_reason_name(c.finish);
  out["seed"] = chat.completion.sampling.seed;
  if (!chat.policy_source.empty()) out["policy"] = policy_json(chat);
  if (const float penalty = chat.completion.sampling.marker_penalty; penalty != 0)
    out["marker_penalty"] = as_typed(penalty);
  out["timing"] = {{"load_s", chat.model->summary().load_seconds},
                   {"prefill_s", c.timing.prefill_s},
                   {"decode_s", c.timing.decode_s},
                   {"prefill_tokens_per_s", c.timing.prefill_tokens_per_s},
                   {"decode_tokens_per_s", c.timing.decode_tokens_per_s}};
  if (chat.completion.sampling.entropy) {
    out["entropies"] = Json::array();
    for (const TokenEvent& e : c.events) out["entropies"].push_back(e.entropy);
  }
  if (chat.completion.sampling.logprobs >= 0) out["logprobs"] = logprobs_json(chat.text, c.events);
  return json_text(out);
}

bool shows_reasoning(const RunOptions& options) {
  return options.reasoning == "show" || (options.reasoning == "auto" && stdout_is_terminal());
}

// What who sees only the answer must know: why there is none, or that it was cut while it went in circles. "": nothing.
std::string remark(const RunOptions& options, const Completion& c) {
  const bool cut = c.finish == FinishReason::kLength;
  const std::string tokens = counted(c.token_ids.size(), "token");
  if (c.finish == FinishReason::kLoop) return fmt::format("stopped after {}: the same 20 came four times", tokens);
  const std::string longer = options.max_tokens.empty() ? "the context is full" : "raise --max-tokens";
  if (c.text.empty() && c.reasoning_tokens > 0 && !shows_reasoning(options))
    return cut ? fmt::format(
                     "cut after {}, all of them reasoning, which is not shown; {}, or see it with --reasoning "
                     "show",
                     tokens, longer)
               : fmt::format("no answer: {} after {} of reasoning; see it with --reasoning show",
                             c.at_stop_text ? "a --stop text came" : "the model ended", tokens);
  if (c.text.empty() && c.reasoning_tokens == 0)
    return fmt::format("the answer is empty: {} after {}", c.at_stop_text ? "a --stop text came" : "it ended", tokens);
  if (cut && has_loop(c.token_ids))
    return fmt::format(
        "cut after {}: the answer repeats itself; draw with a --temperature, or bound it with --max-tokens", tokens);
  return "";
}

int run_once(Chat& chat, const RunOptions& options, const std::string& text) {
  const auto prompt = make_prompt(chat, options, text);
  if (!prompt.ok()) return fail(prompt.status());
  AnswerPrinter printer(shows_reasoning(options), stdout_has_color());
  if (options.entropy) chat.completion.on_token = [&](const TokenEvent& e) { printer.set_entropy(e.entropy); };
  bool readers_left = true;
  ReadingNotice reading(*prompt);
  const auto completion = complete(*chat.engine, chat.text, *prompt, chat.completion, [&](const OutputDelta& delta) {
    hold_interrupts();  // what is printed ends with a whole line
    reading.finish();
    if (!options.json) readers_left = printer.print(delta) && readers_left;
    return readers_left && !interrupted();
  });
  reading.finish();
  if (!completion.ok()) {
    if (!options.json) printer.finish();
    return fail(completion.status());
  }
  if (options.json && completion->finish != FinishReason::kCancelled) {
    if (!write_out(result_json(chat, *completion))) return fail_output();
  }
  if (!options.json) printer.finish();
  if (!readers_left) return fail_output();
  const bool cancelled = completion->finish == FinishReason::kCancelled;
  if (const std::string why = remark(options, *completion);
      !why.empty() && !cancelled && !options.json && !options.quiet)
    note(why);
  if (options.verbose || (stderr_is_terminal() && !options.quiet)) print_err(rates_text(*completion) + "\n");
  return cancelled ? end_interrupted() : kDone;
}

Status check_options(const RunOptions& options) {
  if (options.logprobs && !options.json) return invalid_argument("--logprobs needs --json, which has a place for them");
  if (options.reasoning != "auto" && options.reasoning != "show" && options.reasoning != "hide") {
    return invalid_argument(fmt::format("--reasoning is {}, expected auto, show or hide", quote(options.reasoning)));
  }
  if (options.verbose && options.quiet && !from_environment("HALFBYTE_QUIET") && !from_environment("HALFBYTE_VERBOSE"))
    return invalid_argument("--verbose and --quiet exclude each other: give one");
  return check_prompt_options(options);
}

int run(const RunOptions& options) {
  if (const Status status = check_options(options); !status.ok()) return fail(status);
  const auto prompt = given_prompt(options);
  if (!prompt.ok()) return fail(prompt.status());
  if (!*prompt && options.json) return fail("--json needs a prompt: give one as an argument or pipe one in");
  auto chat = open_chat_of(options);
  if (!chat.ok()) return fail(chat.status());
  const UnreadStdin unread("prompt", warns_of_stdin(options));
  if (options.verbose || (stderr_is_terminal() && !options.quiet)) {
    print_err(fmt::format("{}  {:<9} {}\n", model_table(*chat->model, chat->engine->metrics().context, chat->place),
                          "sampling", sampling_line(*chat)));
  } else if (!chat->policy_source.empty() && !options.quiet) {
    note(sampling_line(*chat));
  }
  if (options.entropy && !options.json && !options.quiet && !stdout_has_color())
    note("--entropy colours a terminal and has no effect here; --json prints the numbers");
  return *prompt ? run_once(*chat, options, **prompt) : run_interactive(*chat, options);
}

}  // namespace

namespace {

constexpr std::string_view kGrey = "\033[90m";
// From certain to open, and the entropy (nats) up to which each holds. Of the 256 colours those that are readable on
// light and on dark.
struct Heat {
  float below;
  std::string_view reasoning, answer;
};
constexpr Heat kHeat[] = {{0.1f, "\033[90m", "\033[0;1m"},
                          {0.5f, "\033[0;38;5;136m", "\033[0;1;38;5;136m"},
                          {1.0f, "\033[0;38;5;172m", "\033[0;1;38;5;172m"},
                          {2.0f, "\033[0;38;5;202m", "\033[0;1;38;5;202m"},
                          {INFINITY, "\033[0;38;5;197m", "\033[0;1;38;5;197m"}};

std::string_view heat(float entropy, bool reasoning) {
  const Heat* level = kHeat;
  while (entropy >= level->below) ++level;
  return reasoning ? level->reasoning : level->answer;
}

}  // namespace

bool AnswerPrinter::style(bool reasoning) {
  if (!color_) return true;
  const std::string_view wanted = entropy_ ? heat(*entropy_, reasoning) : reasoning ? kGrey : std::string_view();
  if (wanted.empty()) return plain();
  if (wanted == style_) return true;
  style_ = wanted;
  return write_out(wanted);
}

bool AnswerPrinter::plain() {
  if (style_.empty()) return true;
  style_ = {};
  return write_out("\033[0m");
}

bool AnswerPrinter::print(const OutputDelta& delta) {
  bool ok = true;
  if (show_reasoning_ && !delta.reasoning.empty()) {
    ok = style(true) && write_out(delta.reasoning);
    wrote_reasoning_ = true;
    ends_line_ = delta.reasoning.back() == '\n';
  }
  if (!delta.answer.empty()) {
    if (wrote_reasoning_ && !wrote_answer_) ok = ok && write_out(ends_line_ ? "\n" : "\n\n");
    ok = ok && style(false) && write_out(delta.answer);
    wrote_answer_ = true;
    ends_line_ = delta.answer.back() == '\n';
  }
  return ok;
}

bool AnswerPrinter::finish() {
  const bool ok = plain() && (ends_line_ || write_out("\n"));
  ends_line_ = true;
  return ok;
}

std::string rates_text(const Completion& c) {
  std::string text =
      fmt::format("{} in {:.2f} s ({:.1f}/s), {} in {:.2f} s ({:.1f}/s)", counted(c.prompt_tokens, "prompt token"),
                  c.timing.prefill_s, c.timing.prefill_tokens_per_s, counted(c.token_ids.size(), "token"),
                  c.timing.decode_s, c.timing.decode_tokens_per_s);
  if (c.reasoning_tokens > 0) text += fmt::format(", {} of them reasoning", c.reasoning_tokens);
  return text + fmt::format(", {}", finish_reason_name(c.finish));
}

Command add_run(CLI::App& app) {
  auto options = std::make_shared<RunOptions>();
  Flags flags(app);
  add_model_argument(flags, options->model);
  flags.words("PROMPT", options->prompt, "What to answer (default: stdin if it is a pipe, else a conversation)");
  add_prompt_flags(flags, *options);
  flags.option("--reasoning", options->reasoning, "Print the reasoning: show, hide, or auto: on a terminal");
  flags.flag(
      "--entropy", options->entropy,
      "Colour each token by the model's doubt, from grey to red (on a terminal); with --json: entropies in nats");
  add_sampling_flags(flags, *options);
  flags.option("--logprobs", options->logprobs, "With --json: log-probability of each token and of the N most likely")
      ->check(whole_number(0, 20));
  flags.flag("--json", options->json, "One JSON object instead of text");
  flags.flag("-v,--verbose", options->verbose,
             "Print the model, the sampling and the rates, also when stderr is no terminal");
  flags.flag("-q,--quiet", options->quiet, "Print neither, and no notes");
  options->model.device = "auto";
  add_device_flag(flags, options->model, "Where to run: cpu, cuda, or auto: a CUDA device where one can be used");
  add_load_flags(flags, options->model);
  add_context_flag(flags, options->model);
  add_prefill_flag(flags, options->model);
  return [options] {
    options->model.quiet = options->quiet && !options->verbose;
    return run(*options);
  };
}

}  // namespace halfbyte::tools
