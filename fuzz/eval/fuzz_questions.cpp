// Question files, and the graders on whatever a model may answer: the text behind the first line is the answer.
#include "../io/fuzz_support.h"
#include "eval/grader.h"
#include "eval/question.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfbyte;
  const std::string_view text = fuzzing::text_of(data, size);
  const auto questions = parse_questions(text, "questions.jsonl");
  fuzzing::check_message(questions.status());
  if (questions.ok()) {
    fuzzing::require(!questions->empty());
    for (const Question& q : *questions) {
      fuzzing::require(!q.id.empty() && !q.prompt.empty());
      fuzzing::require(!q.answer.empty() || q.grading == Grading::kCountdown);
      grade(q, q.answer);
      grade(q, "answer: " + q.answer);
    }
  }
  const auto answer = final_answer(text);
  if (answer)
    fuzzing::require(answer->find('\n') == std::string::npos && text.find("answer: ") != std::string_view::npos);
  Question countdown;
  countdown.task = "countdown";
  countdown.numbers = {3, 7, 12};
  countdown.target = 33;
  if (grade_countdown(countdown, text)) fuzzing::require(text.ends_with("=33"));
  return 0;
}
