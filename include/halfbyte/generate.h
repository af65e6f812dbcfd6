// What a request asks for and what comes back, token by token.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "halfbyte/temperature_policy.h"

namespace halfbyte {

// Applied in this order: raw entropy; logit bias; marker penalty; penalties; temperature; min-p, top-k, top-p; draw. Section 4 of
// docs/numerics.md.
struct SamplingParams {
  float temperature = 1.0f;         // [0, 100]; <= 1e-6: greedy
  TemperaturePolicy policy;         // any rule but kFixed takes the place of `temperature`
  int top_k = 0;                    // 0: off
  float top_p = 1.0f;               // (0, 1]
  float min_p = 0.0f;               // [0, 1]
  float repetition_penalty = 1.0f;  // > 0; on prompt and generated tokens: positive logits divided, negative multiplied
  float frequency_penalty = 0.0f;   // [-2, 2]; per occurrence among generated tokens
  float presence_penalty = 0.0f;    // [-2, 2]; once per generated token
  std::vector<std::pair<int32_t, float>> logit_bias;
  float marker_penalty = 0.0f;         // [0, 100]; 0: off; taken from the logits of:
  std::vector<int32_t> marker_tokens;  // ascending; those of a vocabulary: marker_tokens() of chat.h
  uint64_t seed = 0;
  uint32_t choice = 0;  // index of the choice of one request: same seed, other draws
  int logprobs = -1;    // -1: none; k: the drawn token and the k most likely (k <= 20)
  bool entropy = false;
};

struct TokenLogprob {
  int32_t token = 0;
  float logprob = 0;  // of the raw logits at temperature 1, nats
};

enum class FinishReason { kNone, kStop, kLength, kLoop, kCancelled, kError };
const char* finish_reason_name(FinishReason reason);  // "stop", "length", "loop", "cancelled", "error"

// One generated token.
struct TokenEvent {
  uint64_t request = 0;
  int32_t token = -1;                       // -1 when the event only ends the request
  int64_t position = 0;                     // number of tokens before this one, prompt included
  float entropy = 0;                        // nats, raw logits; when asked for, or under a policy
  float temperature = 1;                    // the one used; 0 for greedy
  std::optional<TemperatureChoice> choice;  // why, under a policy
  std::optional<TokenLogprob> logprob;      // none of a forced token
  std::vector<TokenLogprob> top;            // most likely first
  bool forced = false;  // by Engine::force; entropy, temperature and `top` are those of the draw it replaced
  FinishReason finish = FinishReason::kNone;
  std::string error;  // for kError
};

struct GenerateRequest {
  std::vector<int32_t> prompt;       // token ids, at least one
  int64_t max_tokens = 0;            // 0: up to the context left
  std::vector<int32_t> stop_tokens;  // end the request; the stop token itself is reported with finish = kStop
  bool stop_on_loop = false;         // end with kLoop once the same 20 tokens were generated four times within 1,024
  SamplingParams sampling;
  std::shared_ptr<const StepClasses> step_classes;  // where steps end; any policy but kFixed needs it
};

}  // namespace halfbyte
