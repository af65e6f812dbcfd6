// Lines of code question files: our own, and HumanEval's, MBPP's and LiveCodeBench's as they are published.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "eval/question.h"

namespace halfbyte {

// Whether the line is answered by code: "test" with "entry_point", "test_list", "public_test_cases", "checks" or "tests".
bool is_code_line(const JsonValue& root);

// `name` is what messages call the line, `line` makes an id where there is none.
Status read_code_line(const JsonValue& root, const std::string& name, int64_t line, Question& question);

}  // namespace halfbyte
