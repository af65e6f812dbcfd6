// What a plan does to each token, with teacher forcing on the reference's own texts: both models score the same tokens, and
// their distributions are compared where the reference was sure and where it was not (arXiv 2606.15682, ReQAT).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.h"
#include "halfbyte/engine.h"
#include "halfbyte/temperature_policy.h"

namespace halfbyte {

// One position; all of raw logits at temperature 1 where nothing else is said.
struct ForcedToken {
  float reference_entropy = 0, entropy = 0;  // nats
  float reference_top = 0, top = 0;          // probability of each one's most likely token
  float divergence = 0;                      // KL(reference || plan), nats
  bool mismatch = false;                     // the most likely tokens differ
  bool symbol = false;                       // the reference's most likely token is a digit or an operator
  bool uncertain = false;                    // in an uncertain step of the reference, by ReSET's rule
  // Probability of anything but the reference's most likely token, at the temperature of drawing: 0.6, or for the plan what
  // its policy chooses by its own entropies.
  float reference_other = 0, other = 0;
  // At that temperature: probability of the most likely token, and the entropy in nats.
  float reference_drawn_top = 0, drawn_top = 0, reference_drawn_entropy = 0, drawn_entropy = 0;
};

// Whether a token's text is digits and operators alone, one leading space apart.
bool is_symbol(std::string_view text);

// The logits that the generated tokens of a text were drawn from: of `tokens`, of which `prompt` come first. Those of the
// prompt's own tokens, which may be many times as large, are not kept. The engine is left idle.
Result<ScoreResult> score_text(Engine& engine, std::span<const int32_t> tokens, int64_t prompt);

// The reference's logits of several texts, which every plan is compared with: kept as long as `most_bytes` hold them, scored
// anew after that.
class ReferenceScores {
 public:
  using Score = std::function<Result<ScoreResult>(size_t text)>;
  ReferenceScores(Score score, size_t most_bytes) : score_(std::move(score)), left_bytes_(most_bytes) {}

  Result<std::shared_ptr<const ScoreResult>> of(size_t text);

 private:
  Score score_;
  size_t left_bytes_;
  std::unordered_map<size_t, std::shared_ptr<const ScoreResult>> kept_;
};

// Adds the generated tokens of one text, scored by both with score_text(). `symbols`: by token id. `policy`: the plan's; the reference draws at
// 0.6.
struct ForcedContext {
  const StepClasses& classes;
  const std::vector<bool>& symbols;
  TemperaturePolicy policy;
};
void compare_text(const ScoreResult& reference, const ScoreResult& plan, std::span<const int32_t> tokens,
                  int64_t prompt, const ForcedContext& context, std::vector<ForcedToken>& out);

struct ForcedSummary {
  int64_t tokens = 0;
  double mismatch = 0, divergence = 0;
  // By quarters of the reference's entropy, lowest first.
  std::array<double, 4> quarter_from{}, quarter_mismatch{}, quarter_divergence{};
  // Mean of (tail mass + 1e-4) / (the reference's + 1e-4), tail mass = 1 - top probability.
  std::array<double, 4> quarter_tail{};
  // Over symbols of the lowest quarter: mean probability of anything else, as drawn.
  int64_t symbols = 0;
  double symbolic_error_reference = 0, symbolic_error = 0;
  // Concentration: over the tokens of uncertain steps.
  int64_t uncertain = 0;
  double top_reference = 0, top = 0, entropy_reference = 0, entropy = 0;
  double drawn_top_reference = 0, drawn_top = 0, drawn_entropy_reference = 0, drawn_entropy = 0;
  double above_half_nat_reference = 0, above_half_nat = 0;  // shares of all tokens
};
ForcedSummary summarise_forced(std::span<const ForcedToken> tokens);

}  // namespace halfbyte
