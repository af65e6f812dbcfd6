// Lines of OpenAI's MRCR (multi-round co-reference resolution).
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "eval/question.h"

namespace halfbyte {

// Whether the line has "random_string_to_prepend".
bool is_mrcr_line(const JsonValue& root);

// "prompt", the messages as a list or as JSON in a string, or "messages"; "answer"; "random_string_to_prepend". "n_needles" is
// the level. `name` is what messages call the line, `line` makes an id where there is none.
Status read_mrcr_line(const JsonValue& root, const std::string& name, int64_t line, Question& question);

}  // namespace halfbyte
