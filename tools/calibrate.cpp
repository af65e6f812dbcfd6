// halfbyte calibrate: values that a method needs, from a model's own text.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/percentile.h"
#include "base/progress.h"
#include "base/quote.h"
#include "base/utf8.h"
#include "calibrate_t_low.h"
#include "decode/reset.h"
#include "io/model_source.h"
#include "io/read_file.h"
#include "json_text.h"
#include "model/load_plan.h"
#include "model/plan_fields.h"
#include "output_target.h"
#include "question_options.h"
#include "run.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

struct CalibrateOptions {
  std::string method = "reset", prompts, out;
  RunOptions run;
  QuestionOptions questions;
  std::optional<double> t_low;
  std::vector<double> t_low_grid;
  int samples = 4;
  bool json = false;
};

// The published way (Lee et al. 2026): entropies at this temperature, and this quantile of them.
constexpr float kTemperature = 0.6f;
constexpr double kQuantile = 0.8;
constexpr int64_t kDefaultTokens = 4096;
constexpr double kDefaultTLow = 0.3;
constexpr int kConcurrent = 16;

// One prompt a line; empty lines do not count.
Result<std::vector<std::string>> read_prompts(const std::string& path) {
  std::ifstream in(path);
  if (!in) return not_found(path + ": cannot be read; expected a text file with one prompt a line");
  std::vector<std::string> prompts;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (const auto at = find_invalid_utf8(line))
      return invalid_data(fmt::format("{}: line {} is not UTF-8 at byte {}", path, number, *at));
    if (!line.empty()) prompts.push_back(line);
  }
  if (prompts.empty()) return invalid_data(path + ": there is no prompt in it, expected one a line");
  return prompts;
}

struct Entropies {
  std::vector<double> all;
  std::vector<double> tau0;  // of each prompt's own tokens
};

// All of them before the first is answered, so that a bad one is said at once.
Result<std::vector<Prompt>> make_prompts(const Chat& chat, const CalibrateOptions& options,
                                         const std::vector<std::string>& texts) {
  std::vector<Prompt> prompts;
  const int64_t context = chat.engine->metrics().context;
  for (size_t i = 0; i < texts.size(); ++i) {
    HB_ASSIGN(Prompt prompt, make_prompt(chat, options.run, texts[i]));
    const auto tokens = static_cast<int64_t>(prompt.tokens.size());
    if (tokens >= context) {
      return invalid_data(fmt::format("prompt {} ({}) has {} tokens, which leaves no room in the context of {}", i + 1,
                                      quote(texts[i]), tokens, context));
    }
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

Result<Entropies> generate(Chat& chat, const std::vector<Prompt>& prompts) {
  SamplingParams& p = chat.completion.sampling;
  p.temperature = kTemperature;
  p.entropy = true;
  if (chat.completion.max_tokens == 0) {
    const auto room = chat.engine->metrics().context;
    chat.completion.max_tokens = std::min(kDefaultTokens, room / 2);
  }
  Entropies out;
  ProgressBar bar("calibrating");
  hold_interrupts();
  for (size_t i = 0; i < prompts.size(); ++i) {
    bar.step(i, prompts.size());
    p.choice = static_cast<uint32_t>(i);
    const auto c = complete(*chat.engine, chat.text, prompts[i], chat.completion,
                            [](const OutputDelta&) { return !interrupted(); });
    HB_TRY(c.status().with_context(fmt::format("prompt {}", i + 1)));
    if (c->finish == FinishReason::kCancelled) return cancelled("interrupted");
    std::vector<double> own;
    for (const TokenEvent& e : c->events)
      if (!e.forced) own.push_back(e.entropy);
    if (own.empty()) continue;
    out.tau0.push_back(percentile(own, kQuantile));
    out.all.insert(out.all.end(), own.begin(), own.end());
  }
  bar.finish();
  return out;
}

// Where the model's own plan lies; nothing for a .gguf file.
std::string plan_path(const CalibrateOptions& options, const Model& model) {
  if (!options.out.empty()) return options.out;
  const std::string& path = model.summary().path;
  return std::filesystem::is_directory(path) ? (std::filesystem::path(path) / "halfbyte_plan.json").string() : "";
}

// The file that the plan goes to: one that is not there yet, or a plan.
Result<std::unique_ptr<OutputTarget>> open_plan(const std::string& path) {
  std::error_code failure;
  if (std::filesystem::is_regular_file(path, failure)) {
    HB_ASSIGN(const auto text, read_small_file(path));
    if (text && !plan_from_json(*text, path).ok())
      return invalid_argument(path + ": is there and is no plan, so it is not replaced; name another file with -o");
  }
  return OutputTarget::open(path, "-o");
}

// "w4a16 (...), ..." of the folder before, when the written plan is another one: later commands will run in the new one.
std::string plan_before(const CalibrateOptions& options, const Model& model) {
  if (!options.out.empty()) return "";
  const auto source = open_model_source(model.summary().path);
  if (!source.ok()) return "";
  auto before = default_plan(*source, model.config());
  if (!before.ok()) return "";
  before->reset = model.plan().reset;
  return *before == model.plan() ? "" : plan_text(*before);
}

struct Calibration {
  int64_t prompts = 0;
  Entropies entropies;
  double tau0 = 0, t_low = 0;
  std::optional<TLowGrid> grid;
  std::string plan_path;    // "": nothing was written
  std::string plan_before;  // the folder's default plan where it was another one
};

Status check_options(const CalibrateOptions& o) {
  if (o.method != "reset")
    return invalid_argument(fmt::format("the method to calibrate is {}, expected reset", quote(o.method)));
  if (o.prompts.empty() && !o.questions.given())
    return invalid_argument("what is tau0 to be measured on? Give --prompts FILE, --task NAME or --questions FILE");
  if (o.t_low && !o.t_low_grid.empty())
    return invalid_argument("--t-low and --t-low-grid: the one gives the temperature, the other finds it; give one");
  if (!o.t_low_grid.empty() && !o.questions.given())
    return invalid_argument("--t-low-grid needs questions with answers: give --task NAME or --questions FILE");
  TemperaturePolicy policy;
  policy.rule = TemperatureRule::kReset;
  std::vector<double> t_lows = o.t_low_grid;
  if (o.t_low) t_lows.push_back(*o.t_low);
  for (const double t_low : t_lows) {
    policy.t_low = static_cast<float>(t_low);
    HB_TRY(check_policy(policy).with_context(o.t_low ? "--t-low" : "--t-low-grid"));
  }
  return {};
}

Result<Calibration> run_calibration(const CalibrateOptions& options, Chat& chat) {
  Calibration out;
  out.plan_path = plan_path(options, *chat.model);
  std::unique_ptr<OutputTarget> plan_file;
  if (!out.plan_path.empty()) {
    HB_ASSIGN(plan_file, open_plan(out.plan_path));
  }
  ChosenQuestions chosen;
  if (options.questions.given()) {
    HB_ASSIGN(chosen, choose_questions(options.questions, chat.model->summary().path));
  }
  std::vector<std::string> texts;
  if (options.prompts.empty()) {
    for (const Question& q : chosen.questions) texts.push_back(q.prompt);
  } else {
    HB_ASSIGN(texts, read_prompts(options.prompts));
  }
  HB_ASSIGN(const std::vector<Prompt> prompts, make_prompts(chat, options, texts));
  out.prompts = static_cast<int64_t>(prompts.size());
  HB_ASSIGN(out.entropies, generate(chat, prompts));
  if (out.entropies.all.empty()) return invalid_data("the prompts gave no token");
  out.tau0 = percentile(out.entropies.all, kQuantile);
  out.t_low = options.t_low.value_or(kDefaultTLow);
  if (!options.t_low_grid.empty()) {
    HB_ASSIGN(out.grid, grid_t_low(chat, chosen.questions, options.samples, kConcurrent, out.tau0, options.t_low_grid));
    out.t_low = out.grid->rows[out.grid->best].t_low;
  }
  if (plan_file) {
    out.plan_before = plan_before(options, *chat.model);
    PrecisionPlan plan = chat.model->plan();
    plan.reset = ResetValues{out.tau0, static_cast<float>(out.t_low)};
    HB_TRY(plan_file->write(plan_to_json(plan)));
  }
  return out;
}

Json accuracy_json(const EvalSummary& s) {
  return {{"accuracy", s.accuracy.mean},
          {"ci95", {s.accuracy.low, s.accuracy.high}},
          {"reasoning_tokens_mean", s.reasoning_tokens}};
}

Json grid_json(const std::optional<TLowGrid>& grid) {
  if (!grid) return nullptr;
  Json fixed = accuracy_json(grid->fixed), rows = Json::array();
  fixed["temperature"] = as_typed(grid->temperature);
  for (const TLowRow& r : grid->rows) {
    Json row = accuracy_json(r.summary);
    row["t_low"] = r.t_low;
    row["change"] = r.change.mean;
    row["change_ci95"] = {r.change.low, r.change.high};
    rows.push_back(row);
  }
  return {{"questions", grid->fixed.questions}, {"samples", grid->fixed.samples}, {"fixed", fixed}, {"rows", rows}};
}

// The values hold for the plan they were found in, so that plan is written with them.
std::string plan_change(const Chat& chat, const Calibration& c) {
  if (c.plan_before.empty()) return "";
  return fmt::format("; the folder's default plan was {}, and is now {}", c.plan_before, plan_text(chat.model->plan()));
}

std::string report(const CalibrateOptions& options, const Chat& chat, const Calibration& c) {
  const auto& [all, own] = c.entropies;
  if (options.json) {
    return json_text(Json{{"tau0", c.tau0},
                          {"t_low", c.t_low},
                          {"tokens", all.size()},
                          {"prompts", c.prompts},
                          {"tau0_of_prompts", own},
                          {"t_low_grid", grid_json(c.grid)},
                          {"plan", plan_to_text(chat.model->plan())},
                          {"seed", chat.completion.sampling.seed},
                          {"plan_before", c.plan_before.empty() ? Json(nullptr) : Json(c.plan_before)},
                          {"written", c.plan_path.empty() ? Json(nullptr) : Json(c.plan_path)}});
  }
  const auto [least, most] = std::minmax_element(own.begin(), own.end());
  return fmt::format(
      "tau0 {:.4g} nats: {:g}th percentile of {} of {} at temperature {:g}; a prompt's own: {:.4g} "
      "to {:.4g}\n{}{}\n",
      c.tau0, 100 * kQuantile, all.size() == 1 ? "1 entropy" : fmt::format("{} entropies", all.size()),
      counted(c.prompts, "prompt"), kTemperature, *least, *most, c.grid ? grid_text(*c.grid) : "",
      c.plan_path.empty()
          ? fmt::format("a .gguf file holds no plan: give --reset-tau0 {:.4g} --reset-t-low {:g}", c.tau0, c.t_low)
          : "written to " + c.plan_path + plan_change(chat, c));
}

Status refuse_unused_flags(const CLI::App& app, const CalibrateOptions& o) {
  if (!o.t_low_grid.empty()) return {};
  HB_TRY(refuse_unused(app, "without --t-low-grid", {"--samples"}));
  if (o.prompts.empty()) return {};
  return refuse_unused(app, "with --prompts and without --t-low-grid",
                       {"--task", "--questions", "--levels", "--limit", "--order-seed"});
}

int calibrate(const CalibrateOptions& options) {
  if (const Status status = check_options(options); !status.ok()) return fail(status);
  auto chat = open_chat(options.run, kConcurrent);
  if (!chat.ok()) return fail(chat.status());
  const auto done = run_calibration(options, *chat);
  if (!done.ok()) return interrupted() ? end_interrupted() : fail(done.status());
  return write_out(report(options, *chat, *done)) ? kDone : fail_output();
}

}  // namespace

Command add_calibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  Flags flags(app);
  flags.option("METHOD", options->method, "reset: the threshold tau0 of ReSET, and its low temperature")->required();
  add_model_argument(flags, options->run.model);
  flags.option("--prompts", options->prompts, "A text file with one prompt a line (default: the questions' prompts)");
  add_task_flag(flags, options->questions);
  add_question_flags(flags, options->questions);
  flags.option("--t-low", options->t_low, "The low temperature to write beside tau0 (default: 0.3)");
  flags
      .option("--t-low-grid", options->t_low_grid,
              "Try these low temperatures on the questions, e.g. 0.1,0.3,0.6, and write the most accurate")
      ->delimiter(',');
  flags.option("--samples", options->samples, "Answers to each question for each of --t-low-grid")
      ->check(whole_number(1, 10'000))
      ->capture_default_str();
  flags.option("--max-tokens", options->run.max_tokens,
               "Most tokens of an answer (default: 4096, or half the context)");
  flags.option("--seed", options->run.seed, "Same seed, same answers (default: a random one)")
      ->check(whole_number(0, UINT64_MAX));
  flags.flag("--raw", options->run.raw, "Send the prompts as they are, without the chat template");
  flags.option_as("-o,--out", options->out, "The plan to write (default: halfbyte_plan.json in the model's folder)",
                  "HALFBYTE_CALIBRATE_OUT");
  flags.flag("--json", options->json, "One JSON object instead of text");
  options->run.model.device = "auto";
  add_device_flag(flags, options->run.model, "Where to run: cpu, cuda, or auto: a CUDA device where one can be used");
  add_load_flags(flags, options->run.model);
  add_context_flag(flags, options->run.model);
  add_prefill_flag(flags, options->run.model);
  return [options, &app] {
    if (const Status unused = refuse_unused_flags(app, *options); !unused.ok()) return fail(unused);
    return calibrate(*options);
  };
}

}  // namespace halfbyte::tools
