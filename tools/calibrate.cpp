// halfbyte calibrate: values that a method needs, from a model's own text.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/percentile.h"
#include "base/progress.h"
#include "calibrate_t_low.h"
#include "json_text.h"
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
  for (std::string line; std::getline(in, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) prompts.push_back(line);
  }
  if (prompts.empty()) return invalid_data(path + ": there is no prompt in it, expected one a line");
  return prompts;
}

struct Entropies {
  std::vector<double> all;
  std::vector<double> tau0;  // of each prompt's own tokens
};

Result<Entropies> generate(Chat& chat, const CalibrateOptions& options, const std::vector<std::string>& prompts) {
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
    HB_ASSIGN(const Prompt prompt, make_prompt(chat, options.run, prompts[i]));
    p.choice = static_cast<uint32_t>(i);
    HB_ASSIGN(const Completion c, complete(*chat.engine, chat.text, prompt, chat.completion,
                                           [](const OutputDelta&) { return !interrupted(); }));
    if (c.finish == FinishReason::kCancelled) return cancelled("interrupted");
    std::vector<double> own;
    for (const TokenEvent& e : c.events) own.push_back(e.entropy);
    if (own.empty()) continue;
    out.tau0.push_back(percentile(own, kQuantile));
    out.all.insert(out.all.end(), own.begin(), own.end());
    bar.step(i + 1, prompts.size());
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

Status write_plan(const std::string& path, PrecisionPlan plan, const ResetValues& values) {
  plan.reset = values;
  std::ofstream out(path + ".partial", std::ios::binary | std::ios::trunc);
  out << plan_to_json(plan);
  out.close();
  std::error_code failure;
  if (out) std::filesystem::rename(path + ".partial", path, failure);
  return out && !failure ? Status() : invalid_argument(path + ": cannot be written; name another file with -o");
}

struct Calibration {
  int64_t prompts = 0;
  Entropies entropies;
  ResetValues values;
  std::optional<TLowGrid> grid;
  std::string plan_path;  // "": nothing was written
};

Status check_options(const CalibrateOptions& o) {
  if (o.method != "reset")
    return invalid_argument(fmt::format("the method to calibrate is '{}', expected reset", o.method));
  if (o.prompts.empty() && !o.questions.given())
    return invalid_argument("what is tau0 to be measured on? Give --prompts FILE, --task NAME or --questions FILE");
  if (o.t_low && !o.t_low_grid.empty())
    return invalid_argument("--t-low and --t-low-grid: the one gives the temperature, the other finds it; give one");
  if (!o.t_low_grid.empty() && !o.questions.given())
    return invalid_argument("--t-low-grid needs questions with answers: give --task NAME or --questions FILE");
  return {};
}

Result<Calibration> run_calibration(const CalibrateOptions& options, Chat& chat) {
  Calibration out;
  ChosenQuestions chosen;
  if (options.questions.given()) {
    HB_ASSIGN(chosen, choose_questions(options.questions, chat.model->summary().path));
  }
  std::vector<std::string> prompts;
  if (options.prompts.empty()) {
    for (const Question& q : chosen.questions) prompts.push_back(q.prompt);
  } else {
    HB_ASSIGN(prompts, read_prompts(options.prompts));
  }
  out.prompts = static_cast<int64_t>(prompts.size());
  HB_ASSIGN(out.entropies, generate(chat, options, prompts));
  if (out.entropies.all.empty()) return invalid_data("the prompts gave no token");
  out.values = {percentile(out.entropies.all, kQuantile), static_cast<float>(options.t_low.value_or(kDefaultTLow))};
  if (!options.t_low_grid.empty()) {
    HB_ASSIGN(out.grid,
              grid_t_low(chat, chosen.questions, options.samples, kConcurrent, out.values.tau0, options.t_low_grid));
    out.values.t_low = out.grid->rows[out.grid->best].t_low;
  }
  out.plan_path = plan_path(options, *chat.model);
  if (!out.plan_path.empty()) HB_TRY(write_plan(out.plan_path, chat.model->plan(), out.values));
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
  fixed["temperature"] = grid->temperature;
  for (const TLowRow& r : grid->rows) {
    Json row = accuracy_json(r.summary);
    row["t_low"] = r.t_low;
    row["change"] = r.change.mean;
    row["change_ci95"] = {r.change.low, r.change.high};
    rows.push_back(row);
  }
  return {{"questions", grid->fixed.questions}, {"samples", grid->fixed.samples}, {"fixed", fixed}, {"rows", rows}};
}

std::string report(const CalibrateOptions& options, const Chat& chat, const Calibration& c) {
  const auto& [all, own] = c.entropies;
  if (options.json) {
    return json_text(Json{{"tau0", c.values.tau0},
                          {"t_low", c.values.t_low},
                          {"tokens", all.size()},
                          {"prompts", c.prompts},
                          {"tau0_of_prompts", own},
                          {"t_low_grid", grid_json(c.grid)},
                          {"plan", chat.model->plan().preset},
                          {"seed", chat.completion.sampling.seed},
                          {"written", c.plan_path.empty() ? Json(nullptr) : Json(c.plan_path)}});
  }
  const auto [least, most] = std::minmax_element(own.begin(), own.end());
  return fmt::format(
      "tau0 {:.4f} nats: {:g}th percentile of {} entropies of {} prompts at temperature {:g}; a prompt's own: {:.4f} "
      "to {:.4f}\n{}{}\n",
      c.values.tau0, 100 * kQuantile, all.size(), c.prompts, kTemperature, *least, *most,
      c.grid ? grid_text(*c.grid) : "",
      c.plan_path.empty() ? fmt::format("a .gguf file holds no plan: give --reset-tau0 {:.4f} --reset-t-low {:g}",
                                        c.values.tau0, c.values.t_low)
                          : "written to " + c.plan_path);
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
  add_question_flags(flags, options->questions);
  flags.option("--t-low", options->t_low, "The low temperature to write beside tau0 (default: 0.3)")
      ->check(CLI::Range(0.0, 100.0));
  flags
      .option("--t-low-grid", options->t_low_grid,
              "Try these low temperatures on the questions, e.g. 0.1,0.3,0.6, and write the most accurate")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 100.0));
  flags.option("--samples", options->samples, "Answers to each question for each of --t-low-grid")
      ->check(whole_number(1, 10'000))
      ->capture_default_str();
  flags.option("--max-tokens", options->run.max_tokens,
               "Most tokens of an answer (default: 4096, or half the context)");
  flags.option("--seed", options->run.seed, "Same seed, same answers (default: a random one)")
      ->check(whole_number(0, UINT64_MAX));
  flags.flag("--raw", options->run.raw, "Send the prompts as they are, without the chat template");
  flags.option("-o,--out", options->out, "The plan to write (default: halfbyte_plan.json in the model's folder)");
  flags.flag("--json", options->json, "One JSON object instead of text");
  options->run.model.device = "auto";
  add_device_flag(flags, options->run.model, "Where to run: cpu, cuda, or auto: a CUDA device where one can be used");
  add_load_flags(flags, options->run.model);
  add_context_flag(flags, options->run.model);
  return [options] { return calibrate(*options); };
}

}  // namespace halfbyte::tools
