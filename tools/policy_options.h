// The temperature policy from flags, the model's plan and the published values: the flags that run and trace share.
#pragma once

#include <optional>
#include <string>

#include "command.h"
#include "halfbyte/generate.h"
#include "halfbyte/model.h"
#include "halfbyte/temperature_policy.h"

namespace halfbyte::tools {

struct PolicyOptions {
  std::string rule = "fixed";
  std::optional<double> t_low, t_high, tau0;
  std::optional<int> window;
  bool include_current = false;
};

void add_policy_flags(Flags& flags, PolicyOptions& options);

struct ChosenPolicy {
  TemperaturePolicy policy;
  std::string source;  // where its numbers come from, one line for a person; "" for a fixed temperature
};

// The flags, then the plan's calibrated values, then those published for this model, then the published code's defaults.
// `temperature_given`: --temperature was, too, which a policy does not read.
Result<ChosenPolicy> choose_policy(const PolicyOptions& options, const Model& model, bool temperature_given);

// "reset: tau0 0.5505, t_low 0.1, t_high 1, window 32".
std::string policy_text(const TemperaturePolicy& policy);

// How tokens are drawn: "temperature 0.6, top-p 0.95", or the policy, where its numbers come from, and what cuts off.
std::string drawing_text(const SamplingParams& sampling, const std::string& policy_source);

}  // namespace halfbyte::tools
