// How the temperature of each token is chosen: fixed, or from entropies step by step (ReSET: Lee et al., "ReSET:
// Accurate Latency-Critical NVFP4 Reasoning via Step-Aware Temperature Scaling", 2026; docs/reset.md). All entropies
// are in nats, of the raw logits at temperature 1, before biases, penalties and truncations.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "halfbyte/status.h"

namespace halfbyte {

// With H_t the entropy of the token about to be drawn, H_step the level of the present reasoning step, H_bar the mean
// of all earlier entropies: a step is uncertain when H_step > H_bar, and the temperature is t_high when H_t >=
// threshold, else t_low. The rules below kReset are its ablations.
enum class TemperatureRule : uint8_t {
  kFixed,    // SamplingParams::temperature, whatever the entropy
  kReset,    // threshold: H_step in an uncertain step, else tau0. H_step: the mean of the last `window` entropies until
             // the step holds `window` of them, then the mean of the step
  kToken,    // threshold: tau0 always
  kWindow,   // as kReset, H_step always the mean of the last `window` entropies
  kStep,     // as kReset, H_step always the mean of the step (H_t at its first token)
  kLowStep,  // as kReset, but t_low for every token of a confident step
};
const char* name_of(TemperatureRule rule);  // "fixed", "reset", "token", "window", "step", "low-step"
// kInvalidArgument with the list of names.
Result<TemperatureRule> parse_temperature_rule(std::string_view name);

struct TemperaturePolicy {
  TemperatureRule rule = TemperatureRule::kFixed;
  double tau0 = 0.6349;          // nats, [0, 100]; the published code's default
  float t_low = 0.3f;            // [0, 100]
  float t_high = 1.0f;           // [0, 100]
  int window = 32;               // tokens, 1 to 4096
  bool include_current = false;  // H_t counts in H_step: as the paper writes it; the published code leaves it out
  bool operator==(const TemperaturePolicy&) const = default;
};

// What a policy saw and chose for one token.
struct TemperatureChoice {
  float temperature = 1;    // t_low or t_high
  double step_mean = 0;     // H_step
  double running_mean = 0;  // H_bar
  double threshold = 0;     // that H_t was compared with
  bool uncertain = false;   // the step
  bool boundary = false;    // a step begins with this token
};

// For each token id, how its text can end a reasoning step: 2 contains two newlines in a row, 1 is exactly one newline,
// 0 anything else and special tokens. A step ends after a token of class 2, or after two of class 1 in a row.
using StepClasses = std::vector<uint8_t>;
// Ids beyond the tokenizer's are padding of the model's vocabulary: 0.
inline uint8_t step_class(const StepClasses& classes, int32_t token) {
  const auto at = static_cast<size_t>(token);
  return at < classes.size() ? classes[at] : 0;
}

}  // namespace halfbyte
