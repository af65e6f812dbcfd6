// Multiple choice: how a question is asked, and what a completion chose.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "eval/question.h"

namespace halfbyte {

inline constexpr size_t kMostChoices = 26;

// The letter of a choice, from "A".
std::string choice_letter(size_t index);

// "A. first\nB. second".
std::string lettered_choices(const Question& question);

// The user's message where the model answers in its own words: stem, choices, and to put a letter into \boxed{}.
std::string choice_prompt(const Question& question);

// The letter that the completion chose: of the last \boxed{}, else behind the last "answer is" or "answer:" in any case,
// else the whole answer. "C", "(C)", "**C**", "\text{C}", "C. its text" and a choice's own text are read; nothing else.
std::optional<std::string> choice_final_answer(const Question& question, std::string_view completion);

}  // namespace halfbyte
