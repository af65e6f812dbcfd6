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

TemperatureState::TemperatureState(const TemperaturePolicy& policy) : ring_(static_cast<size_t>(policy.window)) {
  sums_.tau0 = policy.tau0;
  sums_.t_low = policy.t_low;
  sums_.t_high = policy.t_high;
  sums_.window = policy.window;
  sums_.only_window = policy.rule == TemperatureRule::kWindow;
  sums_.only_step = policy.rule == TemperatureRule::kStep;
  sums_.by_token = policy.rule == TemperatureRule::kToken;
  sums_.low_confident = policy.rule == TemperatureRule::kLowStep;
  sums_.include_current = policy.include_current;
}

TemperatureStep TemperatureState::upcoming() const {
  return sums_.upcoming(ring_.data());
}

TemperatureChoice TemperatureState::next(double entropy) {
  const TemperatureStep::Decision d = upcoming().decide(entropy);
  const bool boundary = sums_.take(ring_.data(), entropy);
  return {d.temperature, d.step_mean, d.running_mean, d.threshold, d.uncertain, boundary};
}

void TemperatureState::accept(uint8_t step_class) {
  sums_.accept(step_class);
}

}  // namespace halfbyte
