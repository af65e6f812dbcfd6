// halfbyte bench --policy-cost: what choosing temperatures costs a decode step.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/progress.h"
#include "bench_support.h"
#include "json_text.h"
#include "model/config.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

// A conversation of one sequence that decodes, and starts again when its context is full.
class Sequence {
 public:
  Sequence(std::unique_ptr<Engine> engine, int64_t context, const TemperaturePolicy& policy)
      : engine_(std::move(engine)), context_(context), policy_(policy) {
    // Steps of 16 tokens on average, as short ones cost the most.
    StepClasses classes(static_cast<size_t>(engine_->model().config().vocab));
    for (size_t id = 0; id < classes.size(); id += 16) classes[id] = 2;
    classes_ = std::make_shared<const StepClasses>(std::move(classes));
  }

  // Seconds of one decode step.
  Result<double> step() {
    if (!engine_->busy()) HB_TRY(start());
    const Stopwatch clock;
    HB_TRY(measured_step(*engine_).status());
    return clock.seconds();
  }

 private:
  // Submits and runs the prompt, so that the next step decodes.
  Status start() {
    GenerateRequest request;
    request.prompt = made_up_prompt(context_, engine_->model().config().vocab, 0);
    request.sampling.temperature = 0.6f;
    request.sampling.policy = policy_;
    request.sampling.seed = 1;
    request.step_classes = classes_;
    HB_TRY(engine_->submit(std::move(request)).status());
    while (true) {
      HB_ASSIGN(const std::vector<TokenEvent> events, measured_step(*engine_));
      if (!events.empty()) return {};
    }
  }

  std::unique_ptr<Engine> engine_;
  int64_t context_;
  TemperaturePolicy policy_;
  std::shared_ptr<const StepClasses> classes_;
};

struct Times {
  std::vector<double> fixed, policy, ratio;  // of each pair
};

Result<Times> measure(Sequence& fixed, Sequence& policy, int64_t pairs) {
  constexpr int64_t kWarmup = 8;
  Times out;
  ProgressBar bar("measuring");
  for (int64_t i = -kWarmup; i < pairs; ++i) {
    // Whoever goes first finds other things in the caches, so that changes.
    Sequence& one = i % 2 == 0 ? fixed : policy;
    Sequence& two = i % 2 == 0 ? policy : fixed;
    HB_ASSIGN(double first, one.step());
    HB_ASSIGN(double second, two.step());
    if (interrupted()) return cancelled("interrupted");
    if (i < 0) continue;
    if (i % 2 != 0) std::swap(first, second);
    out.fixed.push_back(first);
    out.policy.push_back(second);
    out.ratio.push_back(second / first);
    bar.share(static_cast<uint64_t>(i) + 1, static_cast<uint64_t>(pairs));
  }
  bar.finish();
  return out;
}

}  // namespace

int run_policy_cost(const std::shared_ptr<Model>& model, const ModelOptions& options, int64_t context, int64_t pairs,
                    bool json) {
  TemperaturePolicy reset;
  reset.rule = TemperatureRule::kReset;
  auto one = make_engine(model, options, 1);
  if (!one.ok()) return fail(one.status());
  auto two = make_engine(model, options, 1);
  if (!two.ok()) return fail(two.status());
  Sequence fixed(std::move(one).value(), context, {}), policy(std::move(two).value(), context, reset);
  const auto times = measure(fixed, policy, pairs);
  if (!times.ok()) return fail(times.status());
  const auto us = [](const std::vector<double>& seconds) { return 1e6 * percentile(seconds, 0.5); };
  const Json out{{"machine", {{"cpu", cpu_model_name()}}},
                 {"model", model->summary().path},
                 {"context", context},
                 {"pairs", pairs},
                 {"fixed_us", us(times->fixed)},
                 {"reset_us", us(times->policy)},
                 {"ratio", percentile(times->ratio, 0.5)},
                 {"ratio_p10", percentile(times->ratio, 0.1)},
                 {"ratio_p90", percentile(times->ratio, 0.9)}};
  const std::string text = fmt::format(
      "a decode step of {} at {} tokens: fixed temperature {:.1f} us, ReSET {:.1f} us; {} pairs of steps: median ratio "
      "{:.4f} (p10 {:.3f}, p90 {:.3f})\n",
      model->summary().path, context, us(times->fixed), us(times->policy), pairs, percentile(times->ratio, 0.5),
      percentile(times->ratio, 0.1), percentile(times->ratio, 0.9));
  return write_out(json ? json_text(out) : text) ? kDone : fail_output();
}

}  // namespace halfbyte::tools
