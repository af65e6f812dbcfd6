#include "eval/grader.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

#include "eval/answer_text.h"
#include "eval/choice.h"
#include "eval/code_grader.h"
#include "eval/math_answer.h"
#include "eval/sequence_ratio.h"

namespace halfbyte {
namespace {

// Digits at the front of `text`, at most nine, taken off it.
std::optional<int64_t> take_number(std::string_view& text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  if (digits == 0 || digits > 9) return std::nullopt;
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + digits, value);
  text.remove_prefix(digits);
  return value;
}

bool take(std::string_view& text, std::string_view expected) {
  if (!text.starts_with(expected)) return false;
  text.remove_prefix(expected.size());
  return true;
}

struct Equation {
  int64_t left, right, result;
  char op;
};

std::optional<Equation> take_equation(std::string_view& text) {
  const auto left = take_number(text);
  if (!left || text.empty()) return std::nullopt;
  const char op = text.front();
  text.remove_prefix(1);
  const auto right = take_number(text);
  if (!right || !take(text, "=")) return std::nullopt;
  const auto result = take_number(text);
  if (!result) return std::nullopt;
  return Equation{*left, *right, *result, op};
}

bool holds(const Equation& e) {
  switch (e.op) {
    case '+': return e.left + e.right == e.result;
    case '-': return e.left - e.right == e.result;
    case '*': return e.left * e.right == e.result;
    case '/': return e.right > 0 && e.left == e.right * e.result;
    default: return false;
  }
}

bool remove_one(std::vector<int64_t>& numbers, int64_t n) {
  const auto at = std::find(numbers.begin(), numbers.end(), n);
  if (at == numbers.end()) return false;
  numbers.erase(at);
  return true;
}

}  // namespace

std::optional<std::string> final_answer(std::string_view completion) {
  constexpr std::string_view kClose = "</think>", kEnd = "<|im_end|>", kAnswer = "answer: ";
  const size_t close = completion.rfind(kClose);
  if (close == std::string_view::npos) {
    if (completion.find("<think>") != std::string_view::npos) return std::nullopt;
  } else {
    completion.remove_prefix(close + kClose.size());
  }
  if (completion.ends_with(kEnd)) completion.remove_suffix(kEnd.size());
  completion = trim(completion);
  if (!take(completion, kAnswer) || completion.find('\n') != std::string_view::npos) return std::nullopt;
  return std::string(trim(completion));
}

bool grade_countdown(const Question& question, std::string_view answer) {
  std::vector<int64_t> left = question.numbers;
  for (bool first = true; first || !answer.empty(); first = false) {
    if (!first && !take(answer, ", ")) return false;
    const auto equation = take_equation(answer);
    if (!equation || !holds(*equation)) return false;
    if (!remove_one(left, equation->left) || !remove_one(left, equation->right)) return false;
    left.push_back(equation->result);
  }
  return left == std::vector<int64_t>{question.target};
}

std::string answer_of(const Question& question, std::string_view completion) {
  switch (question.grading) {
    case Grading::kMath: return math_final_answer(completion).value_or("");
    case Grading::kChoice: return choice_final_answer(question, completion).value_or("");
    case Grading::kSequence: return std::string(trim(answer_part(completion).value_or("")));
    case Grading::kCode: return code_answer(completion).value_or("");
    case Grading::kExact:
    case Grading::kCountdown: return final_answer(completion).value_or("");
  }
  return "";
}

double sequence_score(const Question& question, std::string_view completion) {
  std::string_view answer = answer_part(completion).value_or("");
  answer.remove_prefix(std::min(answer.find_first_not_of(kWhiteSpace), answer.size()));
  if (!take(answer, question.prefix)) return 0;
  std::string_view right = question.answer;
  take(right, question.prefix);
  return sequence_ratio(answer, right);
}

bool grade(const Question& question, std::string_view completion) {
  const std::string answer = answer_of(question, completion);
  switch (question.grading) {
    case Grading::kCountdown: return grade_countdown(question, answer);
    case Grading::kMath: return same_math(question.answer, answer);
    case Grading::kSequence: return sequence_score(question, completion) == 1;
    case Grading::kCode: return false;
    case Grading::kChoice:
    case Grading::kExact: return answer == question.answer;
  }
  return false;
}

}  // namespace halfbyte
