// How a model's maker wants it sampled, when the user says nothing.
#pragma once

#include <string>

#include "halfbyte/generate.h"
#include "io/hf_config.h"

namespace halfbyte {

// From generation_config.json, as vLLM reads it: what the file does not set is off. do_sample false, or a file that sets
// nothing at all, is greedy, and so is top_p 0.
SamplingParams default_sampling(const GenerationConfig& config);

// "temperature 0.6, top-p 0.95, top-k 20" or "greedy", with penalties that are on.
std::string sampling_text(const SamplingParams& params);

}  // namespace halfbyte
