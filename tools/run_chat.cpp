// halfbyte run on a terminal: a conversation with line editing.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>

#include "base/quote.h"
#include "base/utf8.h"
#include "chat/sampling_defaults.h"
#include "decode/sampler.h"
#include "line_editor.h"
#include "run.h"

namespace halfbyte::tools {
namespace {

constexpr const char* kHelp =
    "  /set parameter NAME VALUE   temperature, top_p, top_k, min_p, repetition_penalty, frequency_penalty,\n"
    "                              presence_penalty, marker_penalty, seed, max_tokens, stop_on_loop (on, off),\n"
    "                              policy (fixed, reset and its ablations)\n"
    "  /set system TEXT            system message, from the next conversation on (starts one)\n"
    "  /set think | nothink        the model's reasoning, where its template has a switch\n"
    "  /set verbose | quiet        print the rates of each answer, or do not\n"
    "  /show                       model, system message and sampling\n"
    "  /clear                      start a new conversation\n"
    "  /bye                        leave (so does Ctrl-D)\n"
    "  \"\"\"                         begins and ends a message of several lines\n"
    "  Ctrl-C                      stops an answer\n";

bool starts_with_word(std::string_view& text, std::string_view word) {
  if (!text.starts_with(word) || (text.size() > word.size() && text[word.size()] != ' ')) return false;
  text.remove_prefix(word.size());
  text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  return true;
}

class Session {
 public:
  Session(Chat& chat, const RunOptions& options)
      : chat_(chat), policy_(options.policy), verbose_(options.verbose || !options.quiet), raw_(options.raw) {
    show_reasoning_ = options.reasoning != "hide";
    start_conversation();
  }

  int run() {
    hold_interrupts();
    print_err("Type a message, /? for help, Ctrl-D to leave.\n");
    while (true) {
      const Line line = read_message();
      if (line.kind == Line::kEnd) {
        write_out("\n");
        return kDone;
      }
      if (line.kind == Line::kInterrupted) {
        write_out("\n");
        print_err("Ctrl-D or /bye leaves.\n");
        continue;
      }
      if (line.text.find_first_not_of(" \t\n") == std::string::npos) continue;
      editor_.remember(line.text);
      if (line.text[0] == '/') {
        if (!command(line.text)) return kDone;
      } else if (!answer(line.text)) {
        return fail_output();
      }
    }
  }

 private:
  void start_conversation() {
    messages_.clear();
    if (!chat_.system.empty()) messages_.push_back({.role = "system", .content = chat_.system});
  }

  // One line, or several between """.
  Line read_message() {
    Line first = editor_.read(">>> ");
    if (first.kind != Line::kText || !first.text.starts_with("\"\"\"")) return first;
    std::string text = first.text.substr(3);
    while (!text.ends_with("\"\"\"")) {
      const Line more = editor_.read("... ");
      if (more.kind != Line::kText) return more;
      text += "\n" + more.text;
    }
    text.resize(text.size() - 3);
    return {Line::kText, text};
  }

  // False to leave.
  bool command(std::string_view text) {
    if (starts_with_word(text, "/bye") || starts_with_word(text, "/exit")) return false;
    if (starts_with_word(text, "/?") || starts_with_word(text, "/help")) {
      print_err(kHelp);
    } else if (starts_with_word(text, "/clear")) {
      start_conversation();
      print_err("A new conversation.\n");
    } else if (starts_with_word(text, "/show")) {
      show();
    } else if (starts_with_word(text, "/set")) {
      if (const Status status = set(text); !status.ok()) print_err("error: " + status.message() + "\n");
    } else {
      print_err(fmt::format("error: unknown command {}; /? lists them\n", quote(text.substr(0, text.find(' ')))));
    }
    return true;
  }

  void show() const {
    print_err(fmt::format(
        "{}  {:<9} {}\n  {:<9} {}\n", model_table(*chat_.model, chat_.engine->metrics().context, chat_.place), "system",
        chat_.system.empty() ? "(the template's own)" : chat_.system, "sampling", sampling_line(chat_)));
  }

  Status set(std::string_view text) {
    if (starts_with_word(text, "parameter")) return set_parameter(text);
    if (starts_with_word(text, "system")) {
      chat_.system = text;
      start_conversation();
      print_err("A new conversation.\n");
      return {};
    }
    if (text == "think" || text == "nothink") {
      if (!chat_.text.template_reads_thinking)
        return invalid_argument("the model's chat template has no switch for thinking");
      chat_.render.kwargs_json = {{"enable_thinking", text == "think" ? "true" : "false"}};
      return {};
    }
    if (text == "verbose" || text == "quiet") {
      verbose_ = text == "verbose";
      return {};
    }
    if (text.empty())
      return invalid_argument("/set needs what to set: parameter, system, think, nothink, verbose or quiet");
    return invalid_argument(fmt::format("unknown setting {}; /? lists them", quote(text)));
  }

  // Takes the value only if an answer could be drawn with it, and says what holds now.
  Status set_parameter(std::string_view text) {
    const size_t space = std::min(text.find(' '), text.size());
    const std::string_view name = text.substr(0, space);
    std::string_view value = text.substr(space);
    value.remove_prefix(std::min(value.find_first_not_of(' '), value.size()));
    Answering changed{chat_.completion, chat_.policy_source};
    HB_TRY(read_parameter(name, value, changed));
    HB_TRY(check_sampling(changed.completion.sampling, chat_.model->summary().vocab));
    chat_.completion = std::move(changed.completion);
    chat_.policy_source = std::move(changed.policy_source);
    if (name == "max_tokens") {
      print_err(fmt::format("  {:<9} {}\n", name, chat_.completion.max_tokens));
    } else if (name == "stop_on_loop") {
      print_err(fmt::format("  {} {}\n", name, chat_.completion.stop_on_loop ? "on" : "off"));
    } else {
      print_err(fmt::format("  {:<9} {}\n", "sampling", sampling_line(chat_)));
    }
    return {};
  }

  struct Answering {
    CompletionOptions completion;
    std::string policy_source;
  };

  Status read_parameter(std::string_view name, std::string_view value, Answering& changed) const {
    SamplingParams& p = changed.completion.sampling;
    const std::array<std::pair<std::string_view, float*>, 7> reals{{{"temperature", &p.temperature},
                                                                    {"top_p", &p.top_p},
                                                                    {"min_p", &p.min_p},
                                                                    {"repetition_penalty", &p.repetition_penalty},
                                                                    {"frequency_penalty", &p.frequency_penalty},
                                                                    {"presence_penalty", &p.presence_penalty},
                                                                    {"marker_penalty", &p.marker_penalty}}};
    constexpr std::array<std::string_view, 5> kOthers{"top_k", "seed", "max_tokens", "policy", "stop_on_loop"};
    const auto real = std::ranges::find(reals, name, &std::pair<std::string_view, float*>::first);
    if (std::ranges::find(kOthers, name) == kOthers.end() && real == reals.end()) {
      return invalid_argument(name.empty() ? "/set parameter needs a name and a value; /? lists them"
                                           : fmt::format("unknown parameter {}; /? lists them", quote(name)));
    }
    if (value.empty()) return invalid_argument(fmt::format("{}: the value is missing", name));
    if (name == "temperature" && p.policy.rule != TemperatureRule::kFixed)
      return invalid_argument(
          fmt::format("the policy {} chooses the temperature; /set parameter policy fixed", name_of(p.policy.rule)));
    if (name == "policy") return read_policy(value, changed);
    if (name == "stop_on_loop") {
      if (value != "on" && value != "off")
        return invalid_argument(fmt::format("stop_on_loop: found {}, expected on or off", quote(value)));
      changed.completion.stop_on_loop = value == "on";
      return {};
    }
    if (name == "top_k") return parse_number(name, value, p.top_k);
    if (name == "seed") return parse_number(name, value, p.seed);
    if (name == "max_tokens") return read_size(std::string(value), "max_tokens", changed.completion.max_tokens);
    HB_TRY(parse_number(name, value, *real->second));
    return name == "marker_penalty" ? read_markers(p) : Status();
  }

  // A rule with the values that the model or the command's --reset- flags give it.
  Status read_policy(std::string_view rule, Answering& changed) const {
    PolicyOptions asked = rule == "fixed" ? PolicyOptions() : policy_;
    asked.rule = rule;
    HB_ASSIGN(ChosenPolicy chosen, choose_policy(asked, *chat_.model, /*temperature_given=*/false));
    changed.completion.sampling.policy = chosen.policy;
    changed.policy_source = std::move(chosen.source);
    return {};
  }

  // The words that the penalty is for.
  Status read_markers(SamplingParams& p) const {
    if (!(p.marker_penalty >= 0 && p.marker_penalty <= 100))
      return invalid_argument("marker_penalty: expected a number from 0 to 100");
    return set_marker_penalty({.marker_penalty = p.marker_penalty}, *chat_.model, chat_.text, p);
  }

  template <class T>
  static Status parse_number(std::string_view name, std::string_view text, T& value) {
    T parsed{};
    const auto read = std::from_chars(text.data(), text.data() + text.size(), parsed);
    if (read.ec != std::errc() || read.ptr != text.data() + text.size()) {
      return invalid_argument(fmt::format("{}: {} is no number that it could be", name, quote(text)));
    }
    value = parsed;
    return {};
  }

  // False when nobody reads any more.
  bool answer(const std::string& text) {
    if (const auto at = find_invalid_utf8(text)) {
      print_err(fmt::format("error: the message is not valid UTF-8 at byte {}\n", *at));
      return true;
    }
    messages_.push_back({.role = "user", .content = text});
    clear_interrupt();
    AnswerPrinter printer(show_reasoning_, stdout_has_color());
    if (chat_.completion.sampling.entropy)
      chat_.completion.on_token = [&](const TokenEvent& e) { printer.set_entropy(e.entropy); };
    bool readers_left = true;
    const auto completion = generate(text, [&](const OutputDelta& delta) {
      readers_left = printer.print(delta) && readers_left;
      return readers_left && !interrupted();
    });
    printer.finish();
    chat_.completion.on_token = nullptr;
    clear_interrupt();
    if (!completion.ok()) {
      messages_.pop_back();
      const bool full = completion.status().code() == StatusCode::kResourceExhausted;
      print_err(fmt::format("error: {}{}\n", completion.status().message(),
                            full ? "; /clear starts a new conversation" : ""));
      return true;
    }
    ChatMessage reply{.role = "assistant", .content = completion->text};
    if (!completion->reasoning.empty()) reply.reasoning_content = completion->reasoning;
    messages_.push_back(std::move(reply));
    if (verbose_) print_err(rates_text(*completion) + "\n");
    return readers_left;
  }

  Result<Completion> generate(const std::string& text, const OnDelta& on_delta) {
    HB_ASSIGN(const Prompt prompt,
              raw_ ? raw_prompt(chat_.text, text) : chat_prompt(chat_.text, messages_, chat_.render));
    ReadingNotice reading(prompt);
    return complete(*chat_.engine, chat_.text, prompt, chat_.completion, [&](const OutputDelta& delta) {
      reading.finish();
      return on_delta(delta);
    });
  }

  Chat& chat_;
  PolicyOptions policy_;  // the command's flags
  LineEditor editor_;
  std::vector<ChatMessage> messages_;
  bool verbose_, raw_, show_reasoning_ = true;
};

}  // namespace

int run_interactive(Chat& chat, const RunOptions& options) {
  return Session(chat, options).run();
}

}  // namespace halfbyte::tools
