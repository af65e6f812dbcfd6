// Questions of an evaluation, read from question files (docs/evaluation.md): one JSON object a line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

// How an answer is graded: as the same text, as a countdown's equations, as mathematics (eval/math_answer.h), as the letter of
// a choice (eval/choice.h).
enum class Grading : uint8_t { kExact, kCountdown, kMath, kChoice };

struct Question {
  std::string id, task;
  int64_t level = 0;
  int64_t number = 0;  // place in the file, from 0: the seeds of its samples depend on nothing else
  std::string prompt;  // the user's message
  std::string answer;  // a right answer
  Grading grading = Grading::kExact;
  std::vector<int64_t> numbers;  // countdown: what may be used
  int64_t target = 0;            // countdown: what is to be reached
  // Multiple choice: the choices' texts; `answer` is the letter of the right one.
  std::vector<std::string> choices;
  std::string stem;        // the question without its choices: what their likelihood is scored behind
  bool continued = false;  // the choices are endings of the stem's text and no answers (HellaSwag)
};

// The text of a question file; `name` is what messages call it. Besides our own lines it reads those of GSM8K, MATH-500, AIME
// and HMMT, and multiple choice: MMLU, MMLU-Pro, GPQA, ARC, OpenBookQA, HellaSwag (docs/evaluation.md). `order_seed` and a
// question's number choose the order of choices where a line has none (GPQA). Refuses, with the line: broken JSON, missing
// members, an id that comes twice, a countdown without numbers and target, a right answer that is none of the choices.
Result<std::vector<Question>> parse_questions(std::string_view text, const std::string& name, uint64_t order_seed = 0);
// At most 64 MiB.
Result<std::vector<Question>> read_questions(const std::string& path, uint64_t order_seed = 0);

}  // namespace halfbyte
