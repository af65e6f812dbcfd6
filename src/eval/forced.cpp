#include "eval/forced.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/greedy.h"
#include "decode/reset.h"

namespace halfbyte {
namespace {

constexpr double kTemperature = .6;  // without a policy
constexpr double kTailFloor = 1e-4;

// A row of logits as log-probabilities at temperature 1, in place of the logits.
struct Row {
  std::vector<double> log_p;
  size_t best = 0;
  double entropy = 0;

  explicit Row(std::span<const float> logits) : log_p(logits.begin(), logits.end()) {
    best = static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    const double top = log_p[best];
    double sum = 0;
    for (double& x : log_p) sum += std::exp(x -= top);
    const double log_sum = std::log(sum);
    for (double& x : log_p) {
      x -= log_sum;
      entropy -= std::exp(x) * x;
    }
  }

  double top() const { return std::exp(log_p[best]); }
};

struct Drawn {
  double top = 1, entropy = 0, other = 0;  // other: than `token`
};
Drawn drawn_at(const Row& row, double temperature, size_t token) {
  if (temperature <= double{kGreedyTemperature})
    return {.top = 1, .entropy = 0, .other = row.best == token ? 0.0 : 1.0};
  double all = 0, weighted = 0;
  for (const double x : row.log_p) {
    const double scaled = (x - row.log_p[row.best]) / temperature, e = std::exp(scaled);
    all += e;
    weighted += e > 0 ? e * scaled : 0;
  }
  const double of_token = std::exp((row.log_p[token] - row.log_p[row.best]) / temperature) / all;
  return {.top = 1 / all, .entropy = std::log(all) - weighted / all, .other = 1 - of_token};
}

ForcedToken compare_rows(const Row& reference, const Row& plan, double temperature) {
  ForcedToken t;
  t.reference_entropy = static_cast<float>(reference.entropy);
  t.entropy = static_cast<float>(plan.entropy);
  t.reference_top = static_cast<float>(reference.top());
  t.top = static_cast<float>(plan.top());
  double divergence = 0;
  for (size_t i = 0; i < reference.log_p.size(); ++i)
    divergence += std::exp(reference.log_p[i]) * (reference.log_p[i] - plan.log_p[i]);
  t.divergence = static_cast<float>(std::max(divergence, 0.0));
  t.mismatch = reference.best != plan.best;
  const Drawn before = drawn_at(reference, kTemperature, reference.best);
  const Drawn after = drawn_at(plan, temperature, reference.best);
  t.reference_other = static_cast<float>(before.other);
  t.other = static_cast<float>(after.other);
  t.reference_drawn_top = static_cast<float>(before.top);
  t.drawn_top = static_cast<float>(after.top);
  t.reference_drawn_entropy = static_cast<float>(before.entropy);
  t.drawn_entropy = static_cast<float>(after.entropy);
  return t;
}

double divided(double sum, int64_t n) {
  return n > 0 ? sum / static_cast<double>(n) : 0;
}

}  // namespace

bool is_symbol(std::string_view text) {
  if (text.starts_with(' ')) text.remove_prefix(1);
  return !text.empty() && text.find_first_not_of("0123456789+-*/=<>^%") == std::string_view::npos;
}

Result<ScoreResult> score_text(Engine& engine, std::span<const int32_t> tokens, int64_t prompt) {
  return engine.score(tokens, {.logits = true, .logits_from = prompt - 1, .entropy = false, .prompt_tokens = prompt});
}

Result<std::shared_ptr<const ScoreResult>> ReferenceScores::of(size_t text) {
  if (const auto at = kept_.find(text); at != kept_.end()) return at->second;
  HB_ASSIGN(ScoreResult fresh, score_(text));
  auto scores = std::make_shared<const ScoreResult>(std::move(fresh));
  const size_t bytes = scores->logits.size() * sizeof(float);
  if (bytes <= left_bytes_) {
    left_bytes_ -= bytes;
    kept_.emplace(text, scores);
  }
  return scores;
}

void compare_text(const ScoreResult& a, const ScoreResult& b, std::span<const int32_t> tokens, int64_t prompt,
                  const ForcedContext& context, std::vector<ForcedToken>& out) {
  const auto first = static_cast<size_t>(prompt) - 1;
  if (first + 1 >= tokens.size()) return;  // nothing was generated
  const size_t vocab = a.logits.size() / (tokens.size() - 1 - first);
  TemperatureState steps({.rule = TemperatureRule::kReset});  // of the reference
  const bool fixed = context.policy.rule == TemperatureRule::kFixed;
  TemperatureState policy(fixed ? TemperaturePolicy{.rule = TemperatureRule::kReset} : context.policy);
  for (size_t at = first; at + 1 < tokens.size(); ++at) {
    const Row before(std::span(a.logits).subspan((at - first) * vocab, vocab));
    const Row after(std::span(b.logits).subspan((at - first) * vocab, vocab));
    const double chosen = policy.next(after.entropy).temperature;
    ForcedToken t = compare_rows(before, after, fixed ? kTemperature : chosen);
    t.symbol = before.best < context.symbols.size() && context.symbols[before.best];
    t.uncertain = steps.next(before.entropy).uncertain;
    for (TemperatureState* state : {&steps, &policy}) state->accept(step_class(context.classes, tokens[at + 1]));
    out.push_back(t);
  }
}

ForcedSummary summarise_forced(std::span<const ForcedToken> tokens) {
  ForcedSummary s;
  s.tokens = static_cast<int64_t>(tokens.size());
  std::vector<size_t> order(tokens.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return tokens[a].reference_entropy < tokens[b].reference_entropy; });
  for (size_t quarter = 0; quarter < 4; ++quarter) {
    const size_t begin = quarter * order.size() / 4, end = (quarter + 1) * order.size() / 4;
    if (begin < end) s.quarter_from[quarter] = tokens[order[begin]].reference_entropy;
    for (size_t i = begin; i < end; ++i) {
      const ForcedToken& t = tokens[order[i]];
      s.quarter_mismatch[quarter] += t.mismatch;
      s.quarter_divergence[quarter] += t.divergence;
      s.quarter_tail[quarter] += (1 - t.top + kTailFloor) / (1 - t.reference_top + kTailFloor);
      if (quarter > 0 || !t.symbol) continue;
      ++s.symbols;
      s.symbolic_error_reference += t.reference_other;
      s.symbolic_error += t.other;
    }
    for (auto* sums : {&s.quarter_mismatch, &s.quarter_divergence, &s.quarter_tail})
      (*sums)[quarter] = divided((*sums)[quarter], static_cast<int64_t>(end - begin));
  }
  for (const ForcedToken& t : tokens) {
    s.mismatch += t.mismatch;
    s.divergence += t.divergence;
    s.above_half_nat_reference += t.reference_entropy > .5f;
    s.above_half_nat += t.entropy > .5f;
    if (!t.uncertain) continue;
    ++s.uncertain;
    s.top_reference += t.reference_top;
    s.top += t.top;
    s.entropy_reference += t.reference_entropy;
    s.entropy += t.entropy;
    s.drawn_top_reference += t.reference_drawn_top;
    s.drawn_top += t.drawn_top;
    s.drawn_entropy_reference += t.reference_drawn_entropy;
    s.drawn_entropy += t.drawn_entropy;
  }
  for (double* sum : {&s.mismatch, &s.divergence, &s.above_half_nat_reference, &s.above_half_nat})
    *sum = divided(*sum, s.tokens);
  for (double* sum : {&s.top_reference, &s.top, &s.entropy_reference, &s.entropy, &s.drawn_top_reference, &s.drawn_top,
                      &s.drawn_entropy_reference, &s.drawn_entropy})
    *sum = divided(*sum, s.uncertain);
  for (double* sum : {&s.symbolic_error_reference, &s.symbolic_error}) *sum = divided(*sum, s.symbols);
  return s;
}

}  // namespace halfbyte
