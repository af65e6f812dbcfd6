#include "chat/sampling_defaults.h"

#include <fmt/format.h>

#include "base/greedy.h"
#include "halfbyte/chat.h"
#include "model/config.h"

namespace halfbyte {

SamplingParams default_sampling(const GenerationConfig& config) {
  SamplingParams p;
  const bool says_nothing = !config.do_sample && !config.temperature && !config.top_p && !config.top_k && !config.min_p;
  // A top-p of 0 keeps the most likely token alone, as transformers has it.
  if (says_nothing || config.do_sample == false || config.top_p == 0.0) {
    p.temperature = 0;
  } else {
    p.temperature = static_cast<float>(config.temperature.value_or(1.0));
    p.top_p = static_cast<float>(config.top_p.value_or(1.0));
    p.min_p = static_cast<float>(config.min_p.value_or(0.0));
    p.top_k = static_cast<int>(config.top_k.value_or(0));
  }
  p.repetition_penalty = static_cast<float>(config.repetition_penalty.value_or(1.0));
  return p;
}

std::string sampling_text(const SamplingParams& p) {
  const bool drawn = p.temperature > kGreedyTemperature;
  std::string text = drawn ? fmt::format("temperature {:g}", p.temperature) : "greedy";
  if (drawn && p.top_p < 1.0f) text += fmt::format(", top-p {:g}", p.top_p);
  if (drawn && p.top_k > 0) text += fmt::format(", top-k {}", p.top_k);
  if (drawn && p.min_p > 0) text += fmt::format(", min-p {:g}", p.min_p);
  if (p.repetition_penalty != 1.0f) text += fmt::format(", repetition penalty {:g}", p.repetition_penalty);
  if (p.frequency_penalty != 0.0f) text += fmt::format(", frequency penalty {:g}", p.frequency_penalty);
  if (p.marker_penalty != 0.0f) text += fmt::format(", marker penalty {:g}", p.marker_penalty);
  if (p.presence_penalty != 0.0f) text += fmt::format(", presence penalty {:g}", p.presence_penalty);
  return text;
}

SamplingParams default_sampling(const Model& model) {
  return default_sampling(model.config().generation);
}

}  // namespace halfbyte
