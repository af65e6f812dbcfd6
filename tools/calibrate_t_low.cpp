#include "calibrate_t_low.h"

#include <fmt/format.h>

#include "base/progress.h"
#include "decode/reset.h"
#include "eval_setup.h"

namespace halfbyte::tools {
namespace {

Result<std::vector<SampleResult>> answer(Chat& chat, std::span<const Question> questions, const EvalOptions& options,
                                         const std::string& label) {
  ProgressBar bar(label);
  ResultsFile results;
  HB_TRY(evaluate(*chat.engine, chat.text, questions, options, results, answer_progress(bar)).status());
  bar.finish();
  return results.results();
}

std::string row_text(const std::string& name, const EvalSummary& s, const std::string& change) {
  return fmt::format("{:<12} {:>8.4f} [{:.4f}, {:.4f}] {:>26} {:>10.1f}\n", name, s.accuracy.mean, s.accuracy.low,
                     s.accuracy.high, change, s.reasoning_tokens);
}

}  // namespace

Result<TLowGrid> grid_t_low(Chat& chat, std::span<const Question> questions, int samples, int concurrent, double tau0,
                            std::span<const double> t_lows) {
  EvalOptions options;
  options.samples = samples;
  options.concurrent = concurrent;
  options.max_tokens = chat.completion.max_tokens;
  options.sampling = default_sampling(*chat.model);
  options.sampling.seed = chat.completion.sampling.seed;
  options.render = chat.render;
  TLowGrid grid;
  grid.temperature = options.sampling.temperature;
  HB_ASSIGN(const auto fixed, answer(chat, questions, options, fmt::format("fixed {:g}", grid.temperature)));
  grid.fixed = summarise(fixed, samples);
  options.sampling.policy.rule = TemperatureRule::kReset;
  options.sampling.policy.tau0 = tau0;
  for (const double t_low : t_lows) {
    options.sampling.policy.t_low = static_cast<float>(t_low);
    HB_TRY(check_policy(options.sampling.policy).with_context("--t-low-grid"));
    HB_ASSIGN(const auto own, answer(chat, questions, options, fmt::format("t_low {:g}", t_low)));
    grid.rows.push_back({t_low, summarise(own, samples), accuracy_change(fixed, own, samples)});
    const TLowRow &row = grid.rows.back(), &best = grid.rows[grid.best];
    const double lead = row.summary.accuracy.mean - best.summary.accuracy.mean;
    if (lead > 0 || (lead == 0 && row.t_low > best.t_low)) grid.best = grid.rows.size() - 1;
  }
  return grid;
}

std::string grid_text(const TLowGrid& grid) {
  std::string out =
      fmt::format("{:<12} {:>8} {:<16} {:>26} {:>10}\n", "temperature", "accuracy", "95%", "change", "reasoning");
  out += row_text(fmt::format("fixed {:g}", grid.temperature), grid.fixed, "");
  for (const TLowRow& r : grid.rows) {
    out += row_text(fmt::format("t_low {:g}", r.t_low), r.summary,
                    fmt::format("{:+.4f} [{:+.4f}, {:+.4f}]", r.change.mean, r.change.low, r.change.high));
  }
  const Interval& change = grid.rows[grid.best].change;
  const char* verdict = change.low > 0    ? "better than the fixed temperature"
                        : change.high < 0 ? "worse than the fixed temperature: better to keep that"
                                          : "not to be told from the fixed temperature with so many questions";
  return out + fmt::format("t_low {:g} is the most accurate; it is {}\n", grid.rows[grid.best].t_low, verdict);
}

}  // namespace halfbyte::tools
