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

TemperatureChoice TemperatureState::next(double entropy) {
  TemperatureChoice out;
  out.boundary = std::exchange(boundary_, false);
  if (out.boundary) {
    step_sum_ = 0;
    step_count_ = 0;
  }
  out.step_mean = step_level(entropy);
  out.running_mean = all_count_ > 0 ? all_sum_ / static_cast<double>(all_count_) : out.step_mean;
  out.uncertain = out.step_mean > out.running_mean;
  const bool by_step = out.uncertain && policy_.rule != TemperatureRule::kToken;
  out.threshold = by_step ? out.step_mean : policy_.tau0;
  const bool high = entropy >= out.threshold && (out.uncertain || policy_.rule != TemperatureRule::kLowStep);
  out.temperature = high ? policy_.t_high : policy_.t_low;
  remember(entropy);
  return out;
}

void TemperatureState::accept(uint8_t step_class) {
  boundary_ = step_class == 2 || (step_class == 1 && after_newline_);
  after_newline_ = step_class == 1;
}

double TemperatureState::step_level(double entropy) const {
  const bool by_window = policy_.rule == TemperatureRule::kWindow ||
                         (policy_.rule != TemperatureRule::kStep && step_count_ < policy_.window);
  if (by_window) return window_mean(entropy);
  if (policy_.include_current) return (step_sum_ + entropy) / static_cast<double>(step_count_ + 1);
  return step_count_ > 0 ? step_sum_ / static_cast<double>(step_count_) : entropy;
}

// Of the last `window` entropies, H_t being the youngest of them where it counts.
double TemperatureState::window_mean(double entropy) const {
  const size_t full = static_cast<size_t>(policy_.window);
  size_t skip = 0;
  if (policy_.include_current && recent_.size() == full) skip = 1;
  double total = 0;
  size_t count = 0;
  for (size_t i = skip; i < recent_.size(); ++i, ++count) total += recent_[(oldest_ + i) % recent_.size()];
  if (policy_.include_current || count == 0) {
    total += entropy;
    ++count;
  }
  return total / static_cast<double>(count);
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
