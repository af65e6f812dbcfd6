// ReSET's published values by model (Lee et al. 2026; NVFP4 weights and activations, window 32, t_high 1). They were fitted
// to entropies after the sampler's truncations, not to the raw logits that Halfbyte looks at: `halfbyte calibrate reset` makes
// values of one's own.
#pragma once

#include <optional>
#include <string_view>

#include "model/config.h"

namespace halfbyte {

struct PublishedReset {
  std::string_view model;
  double tau0 = 0;  // nats
  float t_low = 0;
};

// By shape, and where two models share one by rotation base and stop tokens; nullopt for a model without published values.
std::optional<PublishedReset> published_reset(const ModelConfig& config);

}  // namespace halfbyte
