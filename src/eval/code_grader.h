// Python code of an answer, graded by running it.
#pragma once

#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "base/result.h"
#include "eval/question.h"
#include "eval/sandbox.h"

namespace halfbyte {

// What is inside the last fenced block (``` or ```python) behind the reasoning; none without one that is closed.
std::optional<std::string> code_answer(std::string_view completion);

// Whether the code passes all of the question's tests. An error is the sandbox's own: code that fails is wrong. kCancelled
// when a stop was asked for.
Result<bool> grade_code(const Sandbox& sandbox, const CodeTests& tests, const std::string& code,
                        const std::stop_token& stop = {});

// Whether a program's output is the expected one, as LiveCodeBench compares: line by line without white space around a line;
// lines of numbers by their values.
bool same_output(std::string_view output, std::string_view expected);

}  // namespace halfbyte
