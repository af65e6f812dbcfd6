#include "eval/forced.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace halfbyte {
namespace {

TEST(Forced, SymbolsAreDigitsAndOperators) {
  for (const char* text : {"7", " 12", "+", "=", " *"}) EXPECT_TRUE(is_symbol(text)) << text;
  for (const char* text : {"", " ", "a", "7a", "\n\n", ", "}) EXPECT_FALSE(is_symbol(text)) << text;
}

// The rows behind a prompt of one token; four tokens in the vocabulary, of which 2 is a symbol.
ScoreResult scores(std::vector<float> first, const std::vector<float>& second) {
  ScoreResult out;
  out.logprobs.resize(2);
  first.insert(first.end(), second.begin(), second.end());
  out.logits = std::move(first);
  return out;
}

TEST(Forced, ATextIsComparedPositionByPosition) {
  const StepClasses classes;
  const std::vector<bool> symbols{false, false, true, false};
  const ForcedContext context{classes, symbols, {}};
  const std::vector<int32_t> tokens{0, 2, 1};
  const ScoreResult a = scores({0, 0, 4, 0}, {3, 0, 0, 0}), b = scores({0, 0, 1, 0}, {0, 3, 0, 0});
  std::vector<ForcedToken> out;
  compare_text(a, b, tokens, 1, context, out);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_TRUE(out[0].symbol);
  EXPECT_FALSE(out[0].mismatch);
  EXPECT_NEAR(out[0].reference_top, std::exp(4.) / (std::exp(4.) + 3), 1e-6);
  EXPECT_NEAR(out[0].top, std::exp(1.) / (std::exp(1.) + 3), 1e-6);
  EXPECT_TRUE(out[1].mismatch);
  EXPECT_FALSE(out[1].symbol);
  EXPECT_NEAR(out[1].divergence, 3 * (std::exp(3.) - 1) / (std::exp(3.) + 3), 1e-5);
  out.clear();
  ScoreResult short_a = a;
  short_a.logits.erase(short_a.logits.begin(), short_a.logits.begin() + 4);
  compare_text(short_a, short_a, tokens, 2, context, out);
  ASSERT_EQ(out.size(), 1u) << "what a prompt foretells is not compared";
  EXPECT_EQ(out[0].divergence, 0);
  EXPECT_NEAR(out[0].top, std::exp(3.) / (std::exp(3.) + 3), 1e-6);
  compare_text({}, {}, tokens, 3, context, out);
  EXPECT_EQ(out.size(), 1u) << "nothing was generated";
}

TEST(Forced, TheReferenceIsScoredOncePerTextWhileThereIsRoom) {
  std::vector<int> scored(3, 0);
  ReferenceScores reference(
      [&](size_t text) -> Result<ScoreResult> {
        ++scored[text];
        if (text == 2 && scored[2] == 2) return internal_error("no more");
        return scores({static_cast<float>(text), 0, 0, 0}, {0, 0, 0, 0});
      },
      2 * 8 * sizeof(float));
  for (int row = 0; row < 3; ++row) {
    for (size_t text = 0; text < 2; ++text) {
      const auto own = reference.of(text);
      ASSERT_TRUE(own.ok());
      EXPECT_EQ((*own)->logits[0], static_cast<float>(text));
    }
  }
  EXPECT_TRUE(reference.of(2).ok());
  EXPECT_FALSE(reference.of(2).ok()) << "it had no room, so it is scored again";
  EXPECT_EQ(scored, (std::vector<int>{1, 1, 2}));
}

ForcedToken token(float entropy, float top_before, float top_after, bool symbol, bool uncertain) {
  ForcedToken t;
  t.reference_entropy = entropy;
  t.entropy = 2 * entropy;
  t.reference_top = top_before;
  t.top = top_after;
  t.symbol = symbol;
  t.uncertain = uncertain;
  t.reference_other = 0.01f;
  t.other = 0.25f;
  t.drawn_top = top_after / 2;
  t.drawn_entropy = 3 * entropy;
  t.divergence = entropy;
  return t;
}

TEST(Forced, QuartersAreOfTheReferencesEntropy) {
  std::vector<ForcedToken> tokens;
  for (int i = 7; i >= 0; --i) tokens.push_back(token(.2f * static_cast<float>(i), 1, 1, i<3, i> 5));
  tokens[7].mismatch = true;  // entropy 0
  tokens[6].top = .9f;        // entropy .2: tail mass .1
  const ForcedSummary s = summarise_forced(tokens);
  EXPECT_EQ(s.tokens, 8);
  EXPECT_DOUBLE_EQ(s.mismatch, 1.0 / 8);
  EXPECT_DOUBLE_EQ(s.quarter_mismatch[0], .5);
  EXPECT_DOUBLE_EQ(s.quarter_mismatch[3], 0);
  EXPECT_NEAR(s.quarter_tail[0], (1 + (.1 + 1e-4) / 1e-4) / 2, 1e-2);
  EXPECT_NEAR(s.quarter_from[1], .4, 1e-6);
  EXPECT_NEAR(s.quarter_divergence[3], 1.3, 1e-6);
  EXPECT_EQ(s.symbols, 2) << "the third symbol is in the second quarter";
  EXPECT_NEAR(s.symbolic_error, .25, 1e-6);
  EXPECT_NEAR(s.symbolic_error_reference, .01, 1e-6);
  EXPECT_EQ(s.uncertain, 2);
  EXPECT_NEAR(s.entropy_reference, 1.3, 1e-6);
  EXPECT_NEAR(s.entropy, 2.6, 1e-6);
  EXPECT_NEAR(s.drawn_top, .5, 1e-6);
  EXPECT_NEAR(s.drawn_entropy, 3.9, 1e-6);
  EXPECT_DOUBLE_EQ(s.above_half_nat_reference, 5.0 / 8);  // .6 to 1.4
  EXPECT_EQ(summarise_forced({}).tokens, 0);
}

}  // namespace
}  // namespace halfbyte
