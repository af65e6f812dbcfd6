// Questions of an evaluation, read from question files (docs/evaluation.md): one JSON object a line.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

// How an answer is graded: as the same text, as a countdown's equations, as mathematics (eval/math_answer.h), as the letter of
// a choice (eval/choice.h), by how much of a text it repeats (eval/grader.h), as code that is run (eval/code_grader.h).
enum class Grading : uint8_t { kExact, kCountdown, kMath, kChoice, kSequence, kCode };

// A message before the question.
struct QuestionTurn {
  std::string role, content;
};

// What an answer's code must pass. Without a function, tests are what a program reads from stdin and writes to stdout; with
// one, its arguments, a line of JSON each (nothing: none), and what it returns, as JSON.
struct CodeTests {
  std::string before;    // Python that runs before the code: imports, or a function's beginning
  std::string checks;    // Python that runs after it and fails by an exception
  std::string function;  // to be called, a method where the code has a class Solution
  struct Test {
    std::string input, output;
  };
  std::vector<Test> tests;
};

struct Question {
  std::string id, task;
  int64_t level = 0;
  int64_t number = 0;  // place in the file, from 0: the seeds of its samples depend on nothing else
  std::string prompt;  // the user's message
  std::string answer;  // a right answer; a countdown may have none
  Grading grading = Grading::kExact;
  std::vector<int64_t> numbers;  // countdown: what may be used
  int64_t target = 0;            // countdown: what is to be reached
  // Multiple choice: the choices' texts; `answer` is the letter of the right one.
  std::vector<std::string> choices;
  std::string stem;                  // the question without its choices: what their likelihood is scored behind
  std::vector<QuestionTurn> before;  // earlier messages; the prompt is the last
  std::string prefix;                // sequence: what a right answer begins with
  std::shared_ptr<const CodeTests> code;
  bool order_drawn = false;  // the choices have the order of order_seed, not one of the file
  bool continued = false;    // the choices are endings of the stem's text and no answers (HellaSwag)
};

// The text of a question file; `name` is what messages call it. Besides our own lines it reads those of GSM8K, MATH-500, AIME
// and HMMT, and multiple choice: MMLU, MMLU-Pro, GPQA, ARC, OpenBookQA, HellaSwag; MRCR; HumanEval, MBPP, LiveCodeBench (docs/evaluation.md). `order_seed` and a
// question's number choose the order of choices where a line has none (GPQA). Refuses, with the line: broken JSON, missing
// members, an id that comes twice, a countdown without numbers and target, a right answer that is none of the choices.
Result<std::vector<Question>> parse_questions(std::string_view text, const std::string& name, uint64_t order_seed = 0);
// kNotFound; kInvalidData for a folder, or a file above 4 GiB.
Result<std::vector<Question>> read_questions(const std::string& path, uint64_t order_seed = 0);

// FNV-1a over what is asked, what counts as right and which numbers the draws are made of: results are of these questions,
// whatever their file is called.
uint64_t fingerprint(std::span<const Question> questions);

}  // namespace halfbyte
