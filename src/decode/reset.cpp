#include "decode/reset.h"

#include <array>
#include <cstdio>
#include <string>
#include <utility>

#include "base/quote.h"

namespace halfbyte {
namespace {

constexpr std::array<std::pair<TemperatureRule, const char*>, 6> kRules = {{{TemperatureRule::kFixed, "fixed"},
                                                                            {TemperatureRule::kReset, "reset"},
                                                                            {TemperatureRule::kToken, "token"},
                                                                            {TemperatureRule::kWindow, "window"},
                                                                            {TemperatureRule::kStep, "step"},
                                                                            {TemperatureRule::kLowStep, "low-step"}}};
constexpr int kLongestWindow = 4096;

Status check_range(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return {};  // false for NaN
  char text[96];
  std::snprintf(text, sizeof(text), " is %.7g, expected %g to %g", value, low, high);
  return invalid_argument(field + std::string(text));
}

}  // namespace

const char* name_of(TemperatureRule rule) {
  for (const auto& [known, name] : kRules)
    if (known == rule) return name;
  return "?";
}

Result<TemperatureRule> parse_temperature_rule(std::string_view name) {
  std::string names;
  for (const auto& [rule, known] : kRules) {
    if (name == known) return rule;
    names += (names.empty() ? "" : ", ") + std::string(known);
  }
  return invalid_argument("the temperature policy is " + quote(name) + ", expected one of " + names);
}

Status check_policy(const TemperaturePolicy& p) {
  if (p.rule == TemperatureRule::kFixed) return {};
  HB_TRY(check_range("tau0", p.tau0, 0, 100));
  HB_TRY(check_range("t_low", p.t_low, 0, 100));
  HB_TRY(check_range("t_high", p.t_high, 0, 100));
  return check_range("window", p.window, 1, kLongestWindow);
}

TemperatureState::TemperatureState(const TemperaturePolicy& policy) : policy_(policy) {
  recent_.reserve(static_cast<size_t>(policy.window));
}

TemperatureStep TemperatureState::upcoming() const {
  TemperatureStep out;
  const bool fresh = boundary_;  // a step begins: what the last one had does not count
  const double step_sum = fresh ? 0 : step_sum_;
  const int64_t step_count = fresh ? 0 : step_count_;
  const bool by_window = policy_.rule == TemperatureRule::kWindow ||
                         (policy_.rule != TemperatureRule::kStep && step_count < policy_.window);
  int64_t count = step_count;
  if (by_window) {
    count = window_sum(out.sum);
  } else {
    out.sum = step_sum;
  }
  out.counts_current = policy_.include_current || count == 0;
  out.count = static_cast<double>(count + (out.counts_current ? 1 : 0));
  out.has_running_mean = all_count_ > 0;
  if (out.has_running_mean) out.running_mean = all_sum_ / static_cast<double>(all_count_);
  out.tau0 = policy_.tau0;
  out.t_low = policy_.t_low;
  out.t_high = policy_.t_high;
  out.by_token = policy_.rule == TemperatureRule::kToken;
  out.low_confident = policy_.rule == TemperatureRule::kLowStep;
  return out;
}

TemperatureChoice TemperatureState::next(double entropy) {
  const TemperatureStep::Decision d = upcoming().decide(entropy);
  const bool boundary = std::exchange(boundary_, false);
  if (boundary) {
    step_sum_ = 0;
    step_count_ = 0;
  }
  remember(entropy);
  return {d.temperature, d.step_mean, d.running_mean, d.threshold, d.uncertain, boundary};
}

void TemperatureState::accept(uint8_t step_class) {
  boundary_ = step_class == 2 || (step_class == 1 && after_newline_);
  after_newline_ = step_class == 1;
}

// Of the last `window` entropies, H_t being the youngest of them where it counts; returns how many earlier ones there are.
int64_t TemperatureState::window_sum(double& sum) const {
  const bool full = recent_.size() == static_cast<size_t>(policy_.window);
  const size_t skip = policy_.include_current && full ? 1 : 0;
  sum = 0;
  for (size_t i = skip; i < recent_.size(); ++i) sum += recent_[(oldest_ + i) % recent_.size()];
  return static_cast<int64_t>(recent_.size() - skip);
}

void TemperatureState::remember(double entropy) {
  step_sum_ += entropy;
  ++step_count_;
  all_sum_ += entropy;
  ++all_count_;
  if (recent_.size() < static_cast<size_t>(policy_.window)) {
    recent_.push_back(entropy);
    return;
  }
  recent_[oldest_] = entropy;
  oldest_ = (oldest_ + 1) % recent_.size();
}

}  // namespace halfbyte
