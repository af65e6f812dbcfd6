#include "eval/forced.h"

#include <gtest/gtest.h>

#include <cmath>

namespace halfbyte {
namespace {

TEST(Forced, SymbolsAreDigitsAndOperators) {
  for (const char* text : {"7", " 12", "+", "=", " *"}) EXPECT_TRUE(is_symbol(text)) << text;
  for (const char* text : {"", " ", "a", "7a", "\n\n", ", "}) EXPECT_FALSE(is_symbol(text)) << text;
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
