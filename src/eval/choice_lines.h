// Lines of multiple-choice question files as they are published.
#pragma once

#include <cstdint>

#include "base/json.h"
#include "eval/question.h"

namespace halfbyte {

// Whether the line has choices: "choices", "options", "endings", or GPQA's "Correct Answer".
bool is_choice_line(const JsonValue& root);

// Fills the question; its number is set already. `line` makes an id where there is none.
Status read_choice_line(const JsonValue& root, int64_t line, uint64_t order_seed, Question& question);

}  // namespace halfbyte
