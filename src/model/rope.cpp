#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "io/rope_rule.h"

namespace halfbyte {
namespace {

constexpr double kTwoPi = 2.0 * std::numbers::pi;

// The dimension whose wavelength makes `rotations` turns over the original context.
double yarn_dimension(double rotations, double head_dim, double theta, double original_context) {
  return head_dim * std::log(original_context / (rotations * kTwoPi)) / (2.0 * std::log(theta));
}

struct YarnRange {
  double low, high;  // dimensions below low are kept, above high are stretched
};

YarnRange yarn_range(const RopeFacts& facts, double head_dim, double original_context) {
  double low = yarn_dimension(facts.beta_fast, head_dim, facts.theta, original_context);
  double high = yarn_dimension(facts.beta_slow, head_dim, facts.theta, original_context);
  if (facts.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;
  return {low, high};
}

double yarn_mscale(double factor, double mscale) {
  return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

double yarn_attention_factor(const RopeFacts& facts) {
  if (facts.attention_factor) return *facts.attention_factor;
  const double mscale = facts.mscale.value_or(0.0), mscale_all_dim = facts.mscale_all_dim.value_or(0.0);
  if (mscale != 0.0 && mscale_all_dim != 0.0)
    return yarn_mscale(facts.factor, mscale) / yarn_mscale(facts.factor, mscale_all_dim);
  return yarn_mscale(facts.factor, 1.0);
}

}  // namespace

Rope::Rope(const RopeFacts& facts, int64_t head_dim, int64_t max_position) {
  const auto half = static_cast<size_t>(head_dim / 2);
  const double dim = static_cast<double>(head_dim);
  const double original_context =
      static_cast<double>(facts.original_max_position > 0 ? facts.original_max_position : max_position);
  inverse_frequencies_.resize(half);
  for (size_t i = 0; i < half; ++i)
    inverse_frequencies_[i] = 1.0 / std::pow(facts.theta, 2.0 * static_cast<double>(i) / dim);

  switch (facts.kind) {
    case RopeKind::kDefault:
      if (facts.frequency_factors.size() == half)
        for (size_t i = 0; i < half; ++i) inverse_frequencies_[i] /= static_cast<double>(facts.frequency_factors[i]);
      break;
    case RopeKind::kLinear:
      for (double& f : inverse_frequencies_) f /= facts.factor;
      break;
    case RopeKind::kLlama3:
      for (double& f : inverse_frequencies_) f = llama3_frequency(facts, original_context, f);
      break;
    case RopeKind::kYarn: {
      const YarnRange range = yarn_range(facts, dim, original_context);
      for (size_t i = 0; i < half; ++i) {
        const double stretched = std::clamp((static_cast<double>(i) - range.low) / (range.high - range.low), 0.0, 1.0);
        const double f = inverse_frequencies_[i];
        inverse_frequencies_[i] = f / facts.factor * stretched + f * (1.0 - stretched);
      }
      attention_factor_ = yarn_attention_factor(facts);
      break;
    }
  }
}

void Rope::angles(int64_t position, std::span<float> cos, std::span<float> sin) const {
  for (size_t i = 0; i < inverse_frequencies_.size(); ++i) {
    const double angle = static_cast<double>(position) * inverse_frequencies_[i];
    cos[i] = static_cast<float>(std::cos(angle) * attention_factor_);
    sin[i] = static_cast<float>(std::sin(angle) * attention_factor_);
  }
}

}  // namespace halfbyte
