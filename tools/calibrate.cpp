// halfbyte calibrate: values that a method needs, from a model's own text.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/percentile.h"
#include "base/progress.h"
#include "json_text.h"
#include "run.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

struct CalibrateOptions {
  std::string method = "reset", prompts, out;
  RunOptions run;
  double t_low = 0.3;
  bool json = false;
};

// The published way (Lee et al. 2026): entropies at this temperature, and this quantile of them.
constexpr float kTemperature = 0.6f;
constexpr double kQuantile = 0.8;
constexpr int64_t kDefaultTokens = 4096;

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
    bar.update(i + 1, prompts.size());
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

int calibrate(const CalibrateOptions& options) {
  if (options.method != "reset")
    return fail(fmt::format("the method to calibrate is '{}', expected reset", options.method));
  const auto prompts = read_prompts(options.prompts);
  if (!prompts.ok()) return fail(prompts.status());
  auto chat = open_chat(options.run);
  if (!chat.ok()) return fail(chat.status());
  const auto found = generate(*chat, options, *prompts);
  if (!found.ok()) return interrupted() ? end_interrupted() : fail(found.status());
  if (found->all.empty()) return fail("the prompts gave no token");
  const ResetValues values{percentile(found->all, kQuantile), static_cast<float>(options.t_low)};
  const auto [least, most] = std::minmax_element(found->tau0.begin(), found->tau0.end());
  const std::string path = plan_path(options, *chat->model);
  if (!path.empty()) {
    if (const Status status = write_plan(path, chat->model->plan(), values); !status.ok()) return fail(status);
  }
  const Json json{{"tau0", values.tau0},
                  {"t_low", values.t_low},
                  {"tokens", found->all.size()},
                  {"prompts", prompts->size()},
                  {"tau0_of_prompts", found->tau0},
                  {"plan", chat->model->plan().preset},
                  {"written", path.empty() ? Json(nullptr) : Json(path)}};
  const std::string text = fmt::format(
      "tau0 {:.4f} nats: {:g}th percentile of {} entropies of {} prompts at temperature {:g}; a prompt's own: {:.4f} "
      "to {:.4f}\n{}\n",
      values.tau0, 100 * kQuantile, found->all.size(), prompts->size(), kTemperature, *least, *most,
      path.empty() ? fmt::format("a .gguf file holds no plan: give --reset-tau0 {:.4f} --reset-t-low {:g}", values.tau0,
                                 values.t_low)
                   : "written to " + path);
  return write_out(options.json ? json_text(json) : text) ? kDone : fail_output();
}

}  // namespace

Command add_calibrate(CLI::App& app) {
  auto options = std::make_shared<CalibrateOptions>();
  Flags flags(app);
  flags.option("METHOD", options->method, "reset: the threshold tau0 of ReSET")->required();
  add_model_argument(flags, options->run.model);
  flags.option("--prompts", options->prompts, "A text file with one prompt a line")->required();
  flags.option("--t-low", options->t_low, "The low temperature to write beside tau0")->capture_default_str();
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
