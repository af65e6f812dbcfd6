// Answers of mathematics as people write them: numbers, fractions, LaTeX, tuples, intervals, sets, matrices, words.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace halfbyte {

// What a completion answers, behind the last "</think>": the last \boxed{...}; else what follows the last "####", or the last
// "answer is", "answer:" in its line; else the last number. None without any, and where the reasoning was never closed.
std::optional<std::string> math_final_answer(std::string_view completion);

// Whether two answers mean the same. Expressions are compared by their values, at several points where they have variables;
// decimals must be exact (0.333 is not 1/3). The order counts in tuples, intervals and matrices and not in lists and sets.
// Units, degrees, percent and currency signs and a leading "x =" do not count. docs/evaluation.md lists what it cannot see.
bool same_math(std::string_view a, std::string_view b);

}  // namespace halfbyte
