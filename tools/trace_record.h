// What halfbyte trace writes: one record a generated token, as JSON lines and as a page to look at.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "halfbyte/status.h"

namespace halfbyte::tools {

struct TraceCandidate {
  int32_t token = 0;
  std::string text;   // the token's bytes; may be no whole character
  double before = 0;  // probability of the raw logits at temperature 1
  double after = 0;   // at the token's temperature: what is drawn from where no penalty, bias or truncation is set
};

// What a second plan makes of the same prefix.
struct TraceOther {
  int32_t token = 0;  // its most likely one
  std::string text;
  float entropy = 0;       // nats
  double probability = 0;  // that it gives the token that was drawn, temperature 1
};

struct TraceToken {
  int64_t index = 0;  // of the generated tokens
  int32_t token = 0;
  std::string text;  // what the token adds to the text: empty while a character is unfinished
  bool reasoning = false;
  bool forced = false;              // put there by the thinking budget
  float entropy = 0;                // nats, raw logits
  double step_mean = 0;             // H_step
  double running_mean = 0;          // H_bar
  std::optional<double> threshold;  // nothing without a policy
  float temperature = 0;            // 0: greedy
  bool boundary = false;            // a step begins here
  bool uncertain = false;           // the step, at this token
  std::vector<TraceCandidate> top;  // 5 most likely
  std::optional<TraceOther> other;
};

struct TraceHead {
  std::string model, plan, sampling, prompt;
  std::string other_plan;       // empty: no second plan
  std::optional<float> t_high;  // of a policy: below it a temperature was lowered
};

// One line of JSON, with a newline.
std::string trace_json_line(const TraceToken& token);
// A page without any other file: opens from disk, light and dark, mouse and keyboard.
std::string trace_page(const TraceHead& head, std::span<const TraceToken> tokens);

}  // namespace halfbyte::tools
