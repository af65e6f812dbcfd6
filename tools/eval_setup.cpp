#include "eval_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/clock.h"
#include "base/progress.h"
#include "base/quote.h"
#include "base/utf8.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

Status set_sampling(const EvalFlags& flags, EvalSetup& setup) {
  EvalOptions& o = setup.options;
  o.sampling = default_sampling(*setup.model);
  if (flags.temperature) o.sampling.temperature = static_cast<float>(*flags.temperature);
  if (flags.top_p) o.sampling.top_p = static_cast<float>(*flags.top_p);
  if (flags.top_k) o.sampling.top_k = *flags.top_k;
  if (flags.min_p) o.sampling.min_p = static_cast<float>(*flags.min_p);
  HB_ASSIGN(ChosenPolicy chosen, choose_policy(flags.policy, *setup.model, flags.temperature.has_value()));
  o.sampling.policy = chosen.policy;
  HB_TRY(set_marker_penalty(flags.length, *setup.model, setup.text, o.sampling));
  setup.policy_source = std::move(chosen.source);
  o.sampling.seed = flags.seed;
  o.samples = flags.samples;
  o.concurrent = flags.concurrent;
  o.keep_tokens = flags.keep_tokens;
  o.stop_on_loop = flags.length.stop_on_loop;
  if (flags.think) {
    if (!setup.text.template_reads_thinking) {
      return invalid_argument(fmt::format("{}: the model's chat template has no switch for thinking; leave out {}",
                                          quote(setup.text.path), *flags.think ? "--think" : "--no-think"));
    }
    o.render.kwargs_json = {{"enable_thinking", *flags.think ? "true" : "false"}};
  }
  o.max_tokens = kEvalTokens;
  return read_size(flags.max_tokens, "--max-tokens", o.max_tokens);
}

// --code-memory. Python starts in 24 MiB of address space, with what it imports for an answer; more than a TiB is a slip.
constexpr int64_t kLeastCodeMemory = int64_t{64} << 20, kMostCodeMemory = int64_t{1} << 40;

Result<int64_t> code_memory(const EvalFlags& flags) {
  int64_t bytes = 0;
  HB_TRY(read_size(flags.code_memory, "--code-memory", bytes));
  if (bytes < kLeastCodeMemory || bytes > kMostCodeMemory)
    return invalid_argument(fmt::format("--code-memory is {}, expected 64M to 1T", flags.code_memory));
  return bytes;
}

// "sums", "sums, words", or "5 tasks" where they are many.
std::string task_names(std::span<const Question> questions) {
  std::vector<std::string> names;
  for (const Question& q : questions)
    if (std::ranges::find(names, q.task) == names.end()) names.push_back(q.task);
  constexpr size_t kMost = 4;
  return names.size() > kMost ? counted(names.size(), "task") : fmt::format("{}", fmt::join(names, ", "));
}

// What is only scored needs choices.
Status check_choices(const EvalFlags& flags, std::span<const Question> questions) {
  const auto other = std::ranges::find_if(questions, [](const Question& q) { return q.grading != Grading::kChoice; });
  if (other == questions.end()) return {};
  return invalid_argument(fmt::format("--choices {}: the question {} has no choices to score; leave out --choices",
                                      flags.choices, quote(other->id)));
}

// --prompt-suffix and --system, into the questions.
Status change_prompts(const EvalFlags& flags, std::vector<Question>& questions) {
  for (const auto& [flag, text] :
       {std::pair("--prompt-suffix", &flags.prompt_suffix), std::pair("--system", &flags.system)}) {
    if (const auto at = find_invalid_utf8(*text))
      return invalid_argument(fmt::format("{} is not UTF-8 at byte {}", flag, *at));
  }
  for (Question& q : questions) {
    if (!flags.prompt_suffix.empty()) q.prompt += "\n\n" + flags.prompt_suffix;
    if (flags.system.empty()) continue;
    if (!q.before.empty() && q.before.front().role == "system")
      return invalid_argument(
          fmt::format("--system: the question {} has a system message of its own; leave it out", quote(q.id)));
    q.before.insert(q.before.begin(), {"system", flags.system});
  }
  return {};
}

// The context: --ctx, or that of the longest prompt with its answer. Each must fit, which is said before the first is answered;
// an answer whose length nobody asked for may be shorter.
Result<int64_t> choose_context(const EvalFlags& flags, EvalSetup& setup) {
  LongestText longest;
  int64_t answer = 0;  // of `wanted`, what must fit
  if (setup.form) {
    HB_ASSIGN(longest, longest_choice(setup.text, setup.questions, *setup.form));
  } else {
    HB_ASSIGN(longest, longest_prompt(setup.text, setup.questions, setup.options.render));
    answer = flags.max_tokens.empty() ? 1 : setup.options.max_tokens;
  }
  const int64_t most = setup.model->summary().context;
  const int64_t wanted = longest.tokens + (setup.form ? 0 : setup.options.max_tokens);
  int64_t context = std::min(wanted, most);
  HB_TRY(read_size(flags.model.ctx, "--ctx", context));
  if (context < wanted) setup.options.context = context;
  if (longest.tokens + answer <= context) return context;
  const bool given = !setup.form && !flags.max_tokens.empty();
  return invalid_argument(fmt::format(
      "the question {} needs {} tokens{}, and the context is {}{}: {}leave the question out", quote(longest.question),
      longest.tokens + answer, given ? fmt::format(", {} of them for the answer", answer) : "", context,
      context < most ? fmt::format(" (--ctx; the model's is {})", most) : ", the model's",
      given ? "lower --max-tokens, or " : ""));
}

}  // namespace

void add_split_flag(Flags& flags, EvalFlags& o) {
  flags.option("--split", o.questions.split, "validation, or test, which is for final figures alone")
      ->capture_default_str();
}

void add_drawing_flags(Flags& flags, DrawingFlags& o) {
  flags.option("--samples", o.samples, "Answers to each question")
      ->check(whole_number(1, 10'000))
      ->capture_default_str();
  flags.option("--concurrent", o.concurrent, "Answers at once; changes the time, not the result, up to 16")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  flags.option("--seed", o.seed, "Each question's seed is made of it and the question's place in the file")
      ->check(whole_number(0, UINT64_MAX))
      ->capture_default_str();
  flags.option("--temperature", o.temperature, "Instead of the model's")->check(CLI::Range(0.0, 100.0));
  flags.option("--top-p", o.top_p, "Instead of the model's")->check(CLI::Range(0.0, 1.0));
  flags.option("--top-k", o.top_k, "Instead of the model's; 0: off")->check(whole_number(0, INT_MAX));
  flags.option("--min-p", o.min_p, "Instead of the model's; 0: off")->check(CLI::Range(0.0, 1.0));
  flags.option("--prompt-suffix", o.prompt_suffix,
               "Put a blank line and this behind every question, e.g. \"Be concise.\"");
  flags.text("--system", o.system, "System message before every question");
  add_policy_flags(flags, o.policy);
  add_length_flags(flags, o.length);
  flags.option("--max-tokens", o.max_tokens,
               "Longest answer; longer ones count as truncated (default: 1K, or what the context leaves)");
  flags.either("--think,!--no-think", o.think,
               "Switch the model's reasoning on or off, where its template can (default: the template's)");
}

void add_machine_flags(Flags& flags, EvalFlags& o) {
  flags.flag("-q,--quiet", o.quiet, "No progress");
  add_load_flags(flags, o.model);
  add_context_flag(flags, o.model);
  add_prefill_flag(flags, o.model);
  o.model.device = "cpu";
  add_device_flag(flags, o.model, "Where to run: cpu, cuda, or auto: a CUDA device where one can run the model");
}

void add_code_flags(Flags& flags, EvalFlags& o) {
  flags.flag("--allow-code", o.allow_code,
             "Run the code of answers in a sandbox, to grade questions that ask for code");
  flags.flag("--weak-sandbox", o.weak_sandbox, "With --allow-code: also where this kernel gives no whole sandbox");
  flags.option("--python", o.python, "What runs the code")->capture_default_str();
  flags.option("--code-seconds", o.code_seconds, "Processor seconds of a test of code")
      ->check(CLI::Range(1.0, 3600.0))
      ->capture_default_str();
  flags.option("--code-memory", o.code_memory, "Memory of a test of code, 64M to 1T")->capture_default_str();
}

Result<std::optional<ChoiceForm>> parse_choices(const std::string& text) {
  if (text == "generate") return std::optional<ChoiceForm>();
  if (text == "text") return std::optional(ChoiceForm::kText);
  if (text == "letter") return std::optional(ChoiceForm::kLetter);
  return invalid_argument(fmt::format("is {}, expected generate, text or letter", quote(text)));
}

Status refuse_unused_code_flags(const CLI::App& app, const EvalFlags& o) {
  if (o.allow_code) return code_memory(o).status();
  return refuse_unused(app, "without --allow-code", {"--weak-sandbox", "--python", "--code-seconds", "--code-memory"});
}

Result<SharedSandbox> code_sandbox(const EvalFlags& flags, std::span<const Question> questions, SharedSandbox open) {
  HB_TRY(check_code(questions, flags.allow_code));
  if (!asks_for_code(questions)) return SharedSandbox();
  if (open) return open;
  SandboxOptions options{.python = flags.python, .seconds = flags.code_seconds, .accept_weaker = flags.weak_sandbox};
  HB_ASSIGN(options.memory_bytes, code_memory(flags));
  auto sandbox = Sandbox::open(options);
  HB_TRY(sandbox.status().with_context("--allow-code"));
  return std::make_shared<const Sandbox>(std::move(*sandbox));
}

Result<EvalSetup> prepare_eval(const EvalFlags& flags, SharedSandbox sandbox) {
  EvalSetup setup;
  HB_ASSIGN(const std::string path, model_path(flags.model.model));
  HB_ASSIGN(ChosenQuestions chosen, choose_questions(flags.questions, path));
  setup.questions_path = std::move(chosen.path);
  setup.questions = std::move(chosen.questions);
  HB_TRY(change_prompts(flags, setup.questions));
  setup.task = task_names(setup.questions);
  HB_ASSIGN(setup.form, parse_choices(flags.choices));
  if (setup.form) HB_TRY(check_choices(flags, setup.questions));
  HB_ASSIGN(setup.sandbox, code_sandbox(flags, setup.questions, std::move(sandbox)));
  setup.options.sandbox = setup.sandbox.get();
  HB_ASSIGN(setup.text, open_text_model(path));
  if (!setup.form) HB_TRY(check_template(setup.text, path));
  HB_ASSIGN(setup.model, load_model(path, flags.model));
  if (!setup.form) HB_TRY(set_sampling(flags, setup));
  ModelOptions engine = flags.model;
  HB_ASSIGN(const int64_t context, choose_context(flags, setup));
  engine.ctx = std::to_string(context);
  HB_ASSIGN(setup.engine, open_engine(path, engine, setup.model, setup.form ? 1 : flags.concurrent));
  HB_ASSIGN(setup.place, place_of(engine, *setup.model));
  return setup;
}

std::string policy_json(const TemperaturePolicy& p) {
  if (p.rule == TemperatureRule::kFixed) return "null";
  const Json out{{"rule", name_of(p.rule)},      {"tau0", p.tau0},     {"t_low", as_typed(p.t_low)},
                 {"t_high", as_typed(p.t_high)}, {"window", p.window}, {"include_current", p.include_current}};
  return out.dump();
}

std::string settings_json(const EvalFlags& flags, const EvalSetup& setup) {
  const SamplingParams& s = setup.options.sampling;
  Json out{{"halfbyte_eval", 2},
           {"model", setup.model->summary().path},
           {"plan", Json::parse(plan_to_json(setup.model->plan()))},
           {"kernels", setup.place.kernels},
           {"questions", setup.questions_path},
           {"n", setup.questions.size()},
           {"first", setup.questions.front().id},
           {"last", setup.questions.back().id},
           {"fingerprint", fmt::format("{:016x}", fingerprint(setup.questions))},
           {"samples", flags.samples},
           {"seed", flags.seed},
           {"temperature", as_typed(s.temperature)},
           {"top_p", as_typed(s.top_p)},
           {"top_k", s.top_k},
           {"min_p", as_typed(s.min_p)},
           {"penalties", {as_typed(s.repetition_penalty), as_typed(s.frequency_penalty), as_typed(s.presence_penalty)}},
           {"max_tokens", setup.options.max_tokens},
           {"think", flags.think != false}};
  if (flags.think == true) out["think_asked_for"] = true;  // other than what the template does if nothing is said
  if (s.policy.rule != TemperatureRule::kFixed) out["policy"] = Json::parse(policy_json(s.policy));
  if (setup.options.context > 0) out["context"] = setup.options.context;  // it cuts answers short
  if (!flags.prompt_suffix.empty()) out["prompt_suffix"] = flags.prompt_suffix;
  if (!flags.system.empty()) out["system"] = flags.system;
  if (s.marker_penalty != 0) out["marker_penalty"] = as_typed(s.marker_penalty);
  if (flags.length.stop_on_loop) out["stop_on_loop"] = true;
  if (flags.keep_tokens) out["keep_tokens"] = true;
  if (setup.place.device != "cpu") {
    out["device"] = setup.place.device;
    out["device_name"] = setup.place.name;
  }
  if (setup.form) out["choices"] = flags.choices;
  if (setup.sandbox) out["sandbox"] = setup.sandbox->isolation();
  return out.dump();
}

OnEvalProgress answer_progress(ProgressBar& bar) {
  return [&bar, last_done = int64_t{-1}](int64_t done, int64_t total, int64_t) mutable {
    if (done != last_done) bar.piece(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    last_done = done;
    return !interrupted();
  };
}

Result<EvalRun> run_eval(const EvalFlags& flags, EvalSetup& setup, const std::string& label) {
  EvalRun run;
  if (flags.out.empty()) {
    run.results = std::make_unique<ResultsFile>();
  } else {
    HB_ASSIGN(run.results, ResultsFile::open(flags.out, settings_json(flags, setup)));
    setup.options.keep_tokens = run.results->keeps_tokens();  // a file that has them is continued with them
  }
  ProgressBar bar(label, stderr, stderr_is_terminal() && !flags.quiet);
  const Stopwatch clock;
  hold_interrupts();
  const auto tokens =
      setup.form
          ? score_choices(*setup.engine, setup.text, setup.questions, *setup.form, *run.results, answer_progress(bar))
          : evaluate(*setup.engine, setup.text, setup.questions, setup.options, *run.results, answer_progress(bar));
  const double seconds = clock.seconds();
  bar.finish();
  run.results->close();
  HB_TRY(tokens.status());
  run.tokens_per_s = seconds > 0 ? static_cast<double>(*tokens) / seconds : 0;
  return run;
}

}  // namespace halfbyte::tools
