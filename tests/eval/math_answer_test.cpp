#include "eval/math_answer.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "eval/math_expression.h"

namespace halfbyte {
namespace {

using Pairs = std::vector<std::pair<const char*, const char*>>;

TEST(MathAnswer, TheSameInAnotherForm) {
  const Pairs pairs{{"1\\frac{4}{5}", "9/5"},
                    {"\\frac43", "4/3"},
                    {"90^\\circ", "90"},
                    {"10,\\!080", "10080"},
                    {"11,\\! 111,\\! 111,\\! 100", "11111111100"},
                    {"x \\in [-2,7]", "[-2,7]"},
                    {"\\text{(C)}", "C"},
                    {"\\text{Evelyn}", "evelyn"},
                    {"864 \\mbox{ inches}^2", "864"},
                    {"\\$32,\\!348", "32348"},
                    {"\\frac{270}7\\text{ degrees}", "\\frac{270}{7}"},
                    {"y = 2x + 3", "3+2x"},
                    {"3, 5, 7", "7,5,3"},
                    {"5x - 7y + 11z + 4 = 0", "-5x+7y-11z-4=0"},
                    {"(0,9) \\cup (9,36)", "(9,36)\\cup(0,9)"},
                    {"\\begin{pmatrix} 1/5 \\\\ -18/5 \\end{pmatrix}", "\\begin{pmatrix} 0.2 \\\\ -3.6 \\end{pmatrix}"},
                    {"4210_{5}", "4210_5"},
                    {"(a+5)(b+2)", "ab+2a+5b+10"},
                    {"\\cot x", "\\frac{\\cos x}{\\sin x}"},
                    {"6 - 5i", "-5i+6"},
                    {"58,500", "58500"},
                    {"2 \\pm \\sqrt{3}", "2+\\sqrt{3}, 2-\\sqrt{3}"},
                    {"18.90", "$18.9$"},
                    {"\\left(\\frac{3}{5},\\frac{8}{3}\\right]", "(3/5, 8/3]"},
                    {".35625", "0.35625"},
                    {"\\{1,2\\}", "\\{2, 1\\}"},
                    {"12 square inches", "12"},
                    {"50\\%", "50"},
                    {"\\sqrt[3]{-8}", "-2"},
                    {"5!", "120"},
                    {"|x|", "|-x|"}};
  for (const auto& [a, b] : pairs) {
    EXPECT_TRUE(same_math(a, b)) << a << " and " << b;
    EXPECT_TRUE(same_math(b, a)) << b << " and " << a;
  }
}

TEST(MathAnswer, Others) {
  const Pairs pairs{{"(3,4]", "[3,4]"},
                    {"(2,4)", "(4,2)"},
                    {"\\text{east}", "teas"},
                    {"0.333", "1/3"},
                    {"5x=4", "5x=5"},
                    {"\\begin{pmatrix} 1 & 2 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\ 2 \\end{pmatrix}"},
                    {"\\sqrt{x^2}", "x"},
                    {"1,2", "1"},
                    {"1,1", "1,2"},
                    {"x>5", "x<5"},
                    {"", ""},
                    {"5", ""},
                    {"\\pi", "3.14159"},
                    {"\\text{(A)}", "\\text{(B)}"},
                    {"\\frac{1}{0}", "\\frac{2}{0}"},
                    {"12_5", "12_6"},
                    {"even", "odd"},
                    {"\\infty", "-\\infty"},
                    {"(1,234)", "1234"}};
  for (const auto& [a, b] : pairs) EXPECT_FALSE(same_math(a, b)) << a << " and " << b;
}

// What a person would call the same and this does not: none of these may start to pass by accident.
TEST(MathAnswer, KnownFalseNegatives) {
  const Pairs pairs{{"52_8", "52"},                                     // the base is left out
                    {"x > 5", "(5,\\infty)"},                           // an inequality against an interval
                    {"0.5\\%", "0.005"},                                // a percentage as a number
                    {"\\frac{1}{3}", "0.3333"},                         // rounded
                    {"\\$18.90", "1890 cents"},                         // another unit
                    {"\\text{two}", "2"},                               // a number in words
                    {"\\log_2 8", "3 \\text{ exactly, since } 2^3=8"},  // a sentence
                    {"x=1, y=2", "(1,2)"},                              // a solution as a point
                    {"\\sum_{k=1}^{3} k", "6"}};                        // sums are not computed
  for (const auto& [a, b] : pairs) EXPECT_FALSE(same_math(a, b)) << a << " and " << b;
}

TEST(MathAnswer, TheAnswerOfACompletion) {
  const std::pair<const char*, const char*> cases[] = {
      {"so \\boxed{1} or rather \\boxed{\\frac{1}{2}}.", "\\frac{1}{2}"},
      {"<think>\\boxed{3}</think> the result is\n#### 1,200", "1,200"},
      {"The answer is 42.\nThank you", "42"},
      {"We get **Answer: 7**", "7"},
      {"3 boxes of 4 make 12 apples.", "12"},
      {"it is -3.5", "-3.5"},
      {"\\boxed {9}", "9"}};
  for (const auto& [text, answer] : cases) EXPECT_EQ(math_final_answer(text), answer) << text;
  EXPECT_EQ(math_final_answer("<think> \\boxed{3}"), std::nullopt);
  EXPECT_EQ(math_final_answer("no idea"), std::nullopt);
  EXPECT_EQ(math_final_answer("\\boxed{unfinished 8"), "8");
}

TEST(MathAnswer, NothingBreaksIt) {
  std::string deep(3000, '('), frac;
  for (int i = 0; i < 300; ++i) frac += "\\frac{";
  for (const std::string& text :
       {deep, frac, std::string("\\sqrt[0]{2}"), std::string("((((,),"), std::string("\\begin{pmatrix}"),
        std::string("x_{"), std::string("\\\\\\"), std::string("^^^"), std::string("9^9^9^9^9")}) {
    same_math(text, text + "1");
    evaluate_expression(text, 0);
    math_final_answer(text);
  }
}

}  // namespace
}  // namespace halfbyte
