// Rotary position embedding: the angles of each rule. The rotation itself is a kernel (kernels/api.h).
//
// Rules: default; linear (Position Interpolation); llama3; YaRN (arXiv 2309.00071), as transformers'
// modeling_rope_utils computes them. Frequencies and angles are made in FP64; cosines and sines are stored in FP32
// (docs/numerics.md 6).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "io/hf_config.h"

namespace halfbyte {

// Thread-safe after construction.
class Rope {
 public:
  Rope() = default;
  // `max_position`: the model's context, where the rule needs the original one and the file does not say.
  Rope(const RopeFacts& facts, int64_t head_dim, int64_t max_position);

  std::span<const double> inverse_frequencies() const { return inverse_frequencies_; }  // [head_dim / 2]
  // YaRN multiplies cosine and sine by it, and so the scores by its square; 1 for the other rules.
  double attention_factor() const { return attention_factor_; }

  // cos, sin: [head_dim / 2] of one position.
  void angles(int64_t position, std::span<float> cos, std::span<float> sin) const;

 private:
  std::vector<double> inverse_frequencies_;
  double attention_factor_ = 1.0;
};

}  // namespace halfbyte
