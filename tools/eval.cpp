// halfbyte eval: answers the questions of a file, grades them, and says how often they were right, with an interval.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/progress.h"
#include "base/quote.h"
#include "eval/evaluate.h"
#include "json_text.h"
#include "model_options.h"
#include "policy_options.h"
#include "question_options.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

struct EvalFlags {
  ModelOptions model;
  PolicyOptions policy;
  QuestionOptions questions;
  std::string out, max_tokens = "1K";
  int samples = 1, concurrent = 16;
  uint64_t seed = 0;
  std::optional<double> temperature, top_p;
  bool think = true, json = false, quiet = false;
};

// Everything that a run needs once its flags are read.
struct Setup {
  std::string questions_path, task;
  std::vector<Question> questions;
  TextModel text;
  std::shared_ptr<Model> model;
  std::unique_ptr<Engine> engine;
  EvalOptions options;
  std::string policy_source;  // where the policy's numbers come from
};

Status set_sampling(const EvalFlags& flags, Setup& setup) {
  EvalOptions& o = setup.options;
  o.sampling = default_sampling(*setup.model);
  if (flags.temperature) o.sampling.temperature = static_cast<float>(*flags.temperature);
  if (flags.top_p) o.sampling.top_p = static_cast<float>(*flags.top_p);
  HB_ASSIGN(ChosenPolicy chosen, choose_policy(flags.policy, *setup.model, flags.temperature.has_value()));
  o.sampling.policy = chosen.policy;
  setup.policy_source = std::move(chosen.source);
  o.sampling.seed = flags.seed;
  o.samples = flags.samples;
  o.concurrent = flags.concurrent;
  if (!flags.think) {
    if (!setup.text.template_reads_thinking) {
      return invalid_argument(fmt::format(
          "{}: the model's chat template has no switch for thinking; leave out --no-think", quote(setup.text.path)));
    }
    o.render.kwargs_json = {{"enable_thinking", "false"}};
  }
  return read_size(flags.max_tokens, "--max-tokens", o.max_tokens);
}

Result<Setup> prepare(const EvalFlags& flags) {
  Setup setup;
  HB_ASSIGN(const std::string path, model_path(flags.model.model));
  HB_ASSIGN(ChosenQuestions chosen, choose_questions(flags.questions, path));
  setup.questions_path = std::move(chosen.path);
  setup.questions = std::move(chosen.questions);
  setup.task = setup.questions.front().task;
  HB_ASSIGN(setup.text, open_text_model(path));
  HB_TRY(setup.text.template_status);
  HB_ASSIGN(setup.model, load_model(path, flags.model));
  HB_TRY(set_sampling(flags, setup));
  ModelOptions engine = flags.model;
  if (engine.ctx.empty()) {
    HB_ASSIGN(const int64_t longest, longest_prompt(setup.text, setup.questions, setup.options.render));
    engine.ctx = std::to_string(std::min(longest + setup.options.max_tokens, setup.model->summary().context));
  }
  HB_ASSIGN(setup.engine, make_engine(setup.model, engine, flags.concurrent));
  return setup;
}

// Null for a fixed temperature.
Json policy_json(const TemperaturePolicy& p) {
  if (p.rule == TemperatureRule::kFixed) return nullptr;
  return {{"rule", name_of(p.rule)}, {"tau0", p.tau0},     {"t_low", p.t_low},
          {"t_high", p.t_high},      {"window", p.window}, {"include_current", p.include_current}};
}

// All that the results depend on, in one line.
std::string settings_json(const EvalFlags& flags, const Setup& setup) {
  const SamplingParams& s = setup.options.sampling;
  Json out{{"halfbyte_eval", 1},
           {"model", setup.model->summary().path},
           {"plan", Json::parse(plan_to_json(setup.model->plan()))},
           {"kernels", setup.model->summary().kernels},
           {"questions", setup.questions_path},
           {"n", setup.questions.size()},
           {"first", setup.questions.front().id},
           {"last", setup.questions.back().id},
           {"samples", flags.samples},
           {"seed", flags.seed},
           {"temperature", s.temperature},
           {"top_p", s.top_p},
           {"top_k", s.top_k},
           {"max_tokens", setup.options.max_tokens},
           {"think", flags.think}};
  // Only then, so that results of earlier versions go on.
  if (s.policy.rule != TemperatureRule::kFixed) out["policy"] = policy_json(s.policy);
  return out.dump();
}

Json level_rows(const Setup& setup, std::span<const SampleResult> results) {
  std::map<int64_t, std::vector<SampleResult>> by_level;
  const auto n = static_cast<size_t>(setup.options.samples);
  for (size_t i = 0; i < results.size(); ++i) by_level[setup.questions[i / n].level].push_back(results[i]);
  Json rows = Json::array();
  for (const auto& [level, own] : by_level) {
    const EvalSummary s = summarise(own, setup.options.samples);
    rows.push_back({{"level", level},
                    {"n", s.questions},
                    {"accuracy", s.accuracy.mean},
                    {"reasoning_tokens_mean", s.reasoning_tokens},
                    {"truncated", s.truncated}});
  }
  return rows;
}

std::string report(const EvalFlags& flags, const Setup& setup, const ResultsFile& results, double tokens_per_s) {
  const EvalSummary s = summarise(results.results(), setup.options.samples);
  if (!flags.json) {
    return fmt::format(
        "{}, plan {}: {} questions x {} samples{}\n"
        "accuracy          {:.4f}  [{:.4f}, {:.4f}]\n"
        "majority          {:.4f}\n"
        "reasoning tokens  {:.1f}\n"
        "truncated         {:.4f}\n"
        "looped            {:.4f}\n"
        "tokens/s          {:.1f}\n",
        setup.task, plan_text(setup.model->plan()), s.questions, s.samples,
        setup.policy_source.empty()
            ? ""
            : fmt::format("\n{} ({})", policy_text(setup.options.sampling.policy), setup.policy_source),
        s.accuracy.mean, s.accuracy.low, s.accuracy.high, s.majority, s.reasoning_tokens, s.truncated, s.looped,
        tokens_per_s);
  }
  const Json out{{"task", setup.task},
                 {"plan", setup.model->plan().preset},
                 {"n", s.questions},
                 {"samples", s.samples},
                 {"accuracy", s.accuracy.mean},
                 {"ci95", {s.accuracy.low, s.accuracy.high}},
                 {"majority", s.majority},
                 {"reasoning_tokens_mean", s.reasoning_tokens},
                 {"tokens_mean", s.tokens},
                 {"truncated", s.truncated},
                 {"looped", s.looped},
                 {"tokens_per_s", tokens_per_s},
                 {"policy", policy_json(setup.options.sampling.policy)},
                 {"levels", level_rows(setup, results.results())}};
  return json_text(out);
}

int run(const EvalFlags& flags) {
  auto setup = prepare(flags);
  if (!setup.ok()) return fail(setup.status());
  auto results = flags.out.empty() ? Result<std::unique_ptr<ResultsFile>>(std::make_unique<ResultsFile>())
                                   : ResultsFile::open(flags.out, settings_json(flags, *setup));
  if (!results.ok()) return fail(results.status());
  ProgressBar bar("answering", stderr, stderr_is_terminal() && !flags.quiet);
  const Stopwatch clock;
  hold_interrupts();
  int64_t last_done = -1;
  const auto tokens = evaluate(*setup->engine, setup->text, setup->questions, setup->options, **results,
                               [&](int64_t done, int64_t total, int64_t) {
                                 if (done != last_done)
                                   bar.step(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
                                 last_done = done;
                                 return !interrupted();
                               });
  const double seconds = clock.seconds();
  bar.finish();
  if (!tokens.ok()) return interrupted() ? end_interrupted() : fail(tokens.status());
  const double rate = seconds > 0 ? static_cast<double>(*tokens) / seconds : 0;
  return write_out(report(flags, *setup, **results, rate)) ? kDone : fail_output();
}

}  // namespace

Command add_eval(CLI::App& app) {
  auto o = std::make_shared<EvalFlags>();
  Flags flags(app);
  add_model_argument(flags, o->model);
  add_question_flags(flags, o->questions);
  flags.option("--split", o->questions.split, "validation, or test, which is for final figures alone")
      ->capture_default_str();
  flags.option("--samples", o->samples, "Answers to each question")
      ->check(whole_number(1, 10'000))
      ->capture_default_str();
  flags.option("--concurrent", o->concurrent, "Answers at once; changes the time, not the result, up to 16")
      ->check(whole_number(1, 1024))
      ->capture_default_str();
  flags.option("--seed", o->seed, "Each question's seed is made of it and the question's place in the file")
      ->capture_default_str();
  flags.option("--temperature", o->temperature, "Instead of the model's")->check(CLI::Range(0.0, 100.0));
  flags.option("--top-p", o->top_p, "Instead of the model's")->check(CLI::Range(0.0, 1.0));
  add_policy_flags(flags, o->policy);
  flags.option("--max-tokens", o->max_tokens, "Longest answer; longer ones count as truncated")->capture_default_str();
  flags.flag_as("--think,!--no-think", o->think, "Whether the model reasons before it answers (default: it does)",
                "HALFBYTE_THINK");
  flags.option_as("-o,--out", o->out,
                  "Keep every sample in this file (JSON lines); a run that was stopped goes on where it ended",
                  "HALFBYTE_EVAL_OUT");
  flags.flag("--json", o->json, "One JSON object instead of text");
  flags.flag("-q,--quiet", o->quiet, "No progress");
  add_load_flags(flags, o->model);
  add_context_flag(flags, o->model);
  add_device_flag(flags, o->model, "cpu, cuda or auto");
  return [o] { return run(*o); };
}

}  // namespace halfbyte::tools
