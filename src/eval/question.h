// Questions of an evaluation, read from question files (docs/evaluation.md): one JSON object a line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

// How an answer is graded: as the same text, as a countdown's equations, as mathematics (eval/math_answer.h).
enum class Grading : uint8_t { kExact, kCountdown, kMath };

struct Question {
  std::string id, task;
  int64_t level = 0;
  int64_t number = 0;  // place in the file, from 0: the seeds of its samples depend on nothing else
  std::string prompt;  // the user's message
  std::string answer;  // a right answer
  Grading grading = Grading::kExact;
  std::vector<int64_t> numbers;  // countdown: what may be used
  int64_t target = 0;            // countdown: what is to be reached
};

// The text of a question file; `name` is what messages call it. Besides our own lines it reads GSM8K's ("question", "answer"
// with or without the solution before "####") and MATH-500's ("problem", "answer"), also of AIME and HMMT. Refuses, with the line: broken JSON, missing members,
// an id that comes twice, a countdown without numbers and target.
Result<std::vector<Question>> parse_questions(std::string_view text, const std::string& name);
// At most 64 MiB.
Result<std::vector<Question>> read_questions(const std::string& path);

}  // namespace halfbyte
