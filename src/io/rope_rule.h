// The llama3 rope rule (transformers' modeling_rope_utils._compute_llama3_parameters).
#pragma once

#include <numbers>

#include "io/hf_config.h"

namespace halfbyte {

// An inverse frequency after the rule: long wavelengths are stretched by `factor`, short ones kept, those between
// blended.
inline double llama3_frequency(const RopeFacts& facts, double original_context, double frequency) {
  const double wavelength = 2.0 * std::numbers::pi / frequency;
  const double longest_kept = original_context / facts.high_freq_factor;
  const double shortest_stretched = original_context / facts.low_freq_factor;
  if (wavelength < longest_kept) return frequency;
  if (wavelength > shortest_stretched) return frequency / facts.factor;
  const double smooth =
      (original_context / wavelength - facts.low_freq_factor) / (facts.high_freq_factor - facts.low_freq_factor);
  return (1.0 - smooth) * frequency / facts.factor + smooth * frequency;
}

}  // namespace halfbyte
