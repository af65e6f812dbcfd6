// halfbyte eval: answers the questions of a file, grades them, and says how often they were right, with an interval; or
// scores a text.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/progress.h"
#include "base/quote.h"
#include "eval/perplexity.h"
#include "eval_commands.h"
#include "eval_setup.h"
#include "io/read_file.h"
#include "json_text.h"
#include "model/plan_fields.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

Json level_rows(const EvalSetup& setup, std::span<const SampleResult> results) {
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

// Where the model ran.
void add_place(const Place& place, Json& out) {
  out["device"] = place.device;
  out["device_name"] = place.name;
  out["kernels"] = place.kernels;
}

// What is not as the model's maker wants it, a line each.
std::string decoding_text(const EvalSetup& setup) {
  const SamplingParams& p = setup.options.sampling;
  std::string out;
  if (!setup.policy_source.empty()) out += fmt::format("\n{} ({})", policy_text(p.policy), setup.policy_source);
  if (p.marker_penalty != 0) out += fmt::format("\nmarker penalty {:g}", p.marker_penalty);
  return out;
}

std::string report(const EvalFlags& flags, const EvalSetup& setup, const ResultsFile& results, double tokens_per_s) {
  const EvalSummary s = summarise(results.results(), setup.options.samples);
  if (!flags.json) {
    return fmt::format(
        "{}, plan {}: {} x {}{}\n"
        "accuracy          {:.4f}  [{:.4f}, {:.4f}]\n"
        "majority          {:.4f}\n"
        "reasoning tokens  {:.1f}\n"
        "truncated         {:.4f}\n"
        "looped            {:.4f}\n"
        "tokens/s          {:.1f}\n",
        setup.task, plan_text(setup.model->plan()), counted(s.questions, "question"), counted(s.samples, "sample"),
        decoding_text(setup), s.accuracy.mean, s.accuracy.low, s.accuracy.high, s.majority, s.reasoning_tokens,
        s.truncated, s.looped, tokens_per_s);
  }
  Json out{{"task", setup.task},
           {"plan", plan_to_text(setup.model->plan())},
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
           {"policy", Json::parse(policy_json(setup.options.sampling.policy))},
           {"levels", level_rows(setup, results.results())}};
  if (const float penalty = setup.options.sampling.marker_penalty; penalty != 0)
    out["marker_penalty"] = as_typed(penalty);
  add_place(setup.place, out);
  return json_text(out);
}

// Of choices that were scored.
std::string choice_report(const EvalFlags& flags, const EvalSetup& setup, const EvalRun& run) {
  const ChoiceSummary s = summarise_choices(run.results->results());
  if (!flags.json) {
    return fmt::format(
        "{}, plan {}: {}, likelihood of each choice's {}\n"
        "accuracy          {:.4f}  [{:.4f}, {:.4f}]\n"
        "accuracy by len.  {:.4f}  [{:.4f}, {:.4f}]\n"
        "tokens/s          {:.1f}\n",
        setup.task, plan_text(setup.model->plan()), counted(s.questions, "question"), flags.choices, s.accuracy.mean,
        s.accuracy.low, s.accuracy.high, s.accuracy_norm.mean, s.accuracy_norm.low, s.accuracy_norm.high,
        run.tokens_per_s);
  }
  Json out{{"task", setup.task},
           {"plan", plan_to_text(setup.model->plan())},
           {"n", s.questions},
           {"choices", flags.choices},
           {"accuracy", s.accuracy.mean},
           {"ci95", {s.accuracy.low, s.accuracy.high}},
           {"accuracy_norm", s.accuracy_norm.mean},
           {"ci95_norm", {s.accuracy_norm.low, s.accuracy_norm.high}},
           {"tokens_per_s", run.tokens_per_s}};
  add_place(setup.place, out);
  return json_text(out);
}

int answer(EvalFlags flags) {
  // What the environment says of drawing is meant for other runs, and the results do not depend on it.
  if (flags.only_scores()) static_cast<DrawingFlags&>(flags) = {};
  auto setup = prepare_eval(flags);
  if (!setup.ok()) return fail(setup.status());
  const auto run = run_eval(flags, *setup, setup->form ? "scoring" : "answering");
  if (!run.ok()) return interrupted() ? end_interrupted() : fail(run.status());
  if (setup->form) return write_out(choice_report(flags, *setup, *run)) ? kDone : fail_output();
  return write_out(report(flags, *setup, *run->results, run->tokens_per_s)) ? kDone : fail_output();
}

struct TextScore {
  Perplexity score;
  PrecisionPlan plan;
  Place place;
  double seconds = 0;
};

Status check_window(const EvalFlags& flags, int64_t window, size_t tokens, int64_t context) {
  if (window < 2) return invalid_argument(fmt::format("--window is {}, expected 2 or more", window));
  HB_TRY(read_size(flags.model.ctx, "--ctx", context));
  if (window > context)
    return invalid_argument(
        fmt::format("--window is {}, the context {}; choose a window of at most {}", window, context, context));
  if (tokens < static_cast<size_t>(window))
    return invalid_argument(fmt::format("--text {}: has {}, less than one window of {}; choose a smaller --window",
                                        quote(flags.text), counted(tokens, "token"), window));
  return {};
}

Result<TextScore> score_text(const EvalFlags& flags) {
  int64_t window = 0;
  HB_TRY(read_size(flags.window, "--window", window));
  HB_ASSIGN(const std::string path, model_path(flags.model.model));
  HB_ASSIGN(const auto bytes, read_small_file(flags.text));
  if (!bytes) return not_found(fmt::format("--text {}: there is no such file", quote(flags.text)));
  if (bytes->empty()) return invalid_argument(fmt::format("--text {}: is empty, expected a text", quote(flags.text)));
  HB_ASSIGN(const TextModel text, open_text_model(path));
  const auto prompt = raw_prompt(text, *bytes);
  HB_TRY(prompt.status().with_context("--text " + quote(flags.text)));
  HB_ASSIGN(std::shared_ptr<Model> model, load_model(path, flags.model));
  HB_TRY(check_window(flags, window, prompt->tokens.size(), model->summary().context));
  ModelOptions options = flags.model;
  if (options.ctx.empty()) options.ctx = std::to_string(window);
  HB_ASSIGN(const auto engine, open_engine(path, options, model, 1));
  ProgressBar bar("scoring", stderr, stderr_is_terminal() && !flags.quiet);
  hold_interrupts();
  const Stopwatch clock;
  const auto score = perplexity(*engine, prompt->tokens, window, [&](int64_t done, int64_t total) {
    bar.piece(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    return !interrupted();
  });
  bar.finish();
  HB_TRY(score.status());
  const double seconds = clock.seconds();
  HB_ASSIGN(Place place, place_of(options, *model));
  return TextScore{*score, model->plan(), std::move(place), seconds};
}

int score(const EvalFlags& flags) {
  if (flags.text.empty()) return fail("--task perplexity scores a text: name it with --text FILE");
  const auto result = score_text(flags);
  if (!result.ok()) return interrupted() ? end_interrupted() : fail(result.status());
  const Perplexity& s = result->score;
  const double rate = result->seconds > 0 ? static_cast<double>(s.tokens) / result->seconds : 0;
  if (!flags.json) {
    return write_out(fmt::format("perplexity, plan {}: {}, {}\n"
                                 "perplexity        {:.4f}\n"
                                 "nats a token      {:.5f}\n"
                                 "tokens/s          {:.1f}\n",
                                 plan_text(result->plan), counted(s.windows, "window"), counted(s.tokens, "token"),
                                 s.perplexity, s.nats, rate))
               ? kDone
               : fail_output();
  }
  Json out{{"task", "perplexity"}, {"plan", plan_to_text(result->plan)}, {"windows", s.windows}, {"tokens", s.tokens},
           {"nats", s.nats},       {"perplexity", s.perplexity},         {"tokens_per_s", rate}};
  add_place(result->place, out);
  return write_out(json_text(out)) ? kDone : fail_output();
}

// The options of eval by what reads them.
struct OptionsByReader {
  std::vector<const CLI::Option*> choosing, scoring, drawing, grading, code;
};

Status refuse_unused_flags(const CLI::App& app, const EvalFlags& o, const OptionsByReader& options) {
  if (o.questions.task == "perplexity") {
    for (const auto* unread : {&options.choosing, &options.drawing, &options.grading, &options.code})
      HB_TRY(refuse_unused(*unread, "with --task perplexity"));
    return {};
  }
  HB_TRY(refuse_unused(options.scoring, "without --task perplexity"));
  if (!o.questions.questions.empty()) HB_TRY(refuse_unused(app, "with --questions", {"--split"}));
  if (o.only_scores()) {
    for (const auto* unread : {&options.drawing, &options.code})
      HB_TRY(refuse_unused(*unread, fmt::format("with --choices {}, where nothing is drawn or generated", o.choices)));
  } else if (o.out.empty()) {
    HB_TRY(refuse_unused(app, "without -o", {"--keep-tokens"}));
  }
  return refuse_unused_code_flags(app, o);
}

}  // namespace

Command add_eval(CLI::App& app) {
  auto o = std::make_shared<EvalFlags>();
  Flags flags(app);
  OptionsByReader options;
  add_model_argument(flags, o->model);
  add_task_flag(flags, o->questions);
  options.choosing = options_added(app, [&] { add_question_flags(flags, o->questions); });
  options.scoring = options_added(app, [&] {
    flags.option("--text", o->text, "The text that --task perplexity scores");
    flags.option("--window", o->window, "Tokens of a perplexity's windows")->capture_default_str();
  });
  std::ranges::copy(options_added(app, [&] { add_split_flag(flags, *o); }), std::back_inserter(options.choosing));
  options.drawing = options_added(app, [&] {
    add_drawing_flags(flags, *o);
    flags.flag("--keep-tokens", o->keep_tokens, "Keep the token ids of each answer in the results file");
  });
  add_machine_flags(flags, *o);
  options.grading = options_added(app, [&] {
    flags
        .option("--choices", o->choices,
                "Multiple choice: generate (the model answers), or the likelihood of each choice's text or letter")
        ->check(readable(parse_choices))
        ->capture_default_str();
  });
  options.code = options_added(app, [&] { add_code_flags(flags, *o); });
  const auto out = options_added(app, [&] {
    flags.option_as("-o,--out", o->out,
                    "Keep every sample in this file (JSON lines); a run that was stopped goes on where it ended",
                    "HALFBYTE_EVAL_OUT");
  });
  std::ranges::copy(out, std::back_inserter(options.grading));
  flags.flag("--json", o->json, "One JSON object instead of text");
  CLI::App* compare = app.add_subcommand("compare", "Compare results files of the same questions");
  CLI::App* sweep = app.add_subcommand("sweep", "Evaluate several plans and tasks, and write one report");
  app.require_subcommand(0, 1);
  const Command run_compare = add_eval_compare(*compare), run_sweep = add_eval_sweep(*sweep);
  return [o, options, &app, compare, sweep, run_compare, run_sweep] {
    for (const auto& [below, run_below] : {std::pair(compare, run_compare), std::pair(sweep, run_sweep)}) {
      if (!below->parsed()) continue;
      const Status before = refuse_before(app, *below);
      return before.ok() ? run_below() : fail(before);
    }
    if (const Status unused = refuse_unused_flags(app, *o, options); !unused.ok()) return fail(unused);
    return o->questions.task == "perplexity" ? score(*o) : answer(*o);
  };
}

}  // namespace halfbyte::tools
