#include "eval/question.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/json.h"
#include "base/quote.h"
#include "base/quote_path.h"
#include "eval/answer_text.h"
#include "eval/choice_lines.h"
#include "eval/code_lines.h"
#include "eval/json_line.h"
#include "eval/mrcr_lines.h"
#include "eval/question_text.h"
#include "io/mapping_guard.h"

namespace halfbyte {
namespace {

constexpr int64_t kLargest = 1'000'000'000;
constexpr int64_t kLargestInEquation = 999'999'999;  // nine digits are what the grader reads
constexpr size_t kMostBytes = size_t{4} << 30;       // LiveCodeBench with its private tests is above 1 GiB

Status read_countdown(const JsonValue& root, Question& question) {
  HB_ASSIGN(const JsonValue numbers, root.at("numbers"));
  HB_ASSIGN(const auto items, numbers.elements());
  if (items.size() < 2 || items.size() > 16)  // an equation takes two
    return numbers.error(fmt::format("found a list of {}, expected 2 to 16 numbers", items.size()));
  for (const JsonValue& item : items) {
    HB_ASSIGN(const int64_t n, item.as_int(0, kLargestInEquation));
    question.numbers.push_back(n);
  }
  HB_ASSIGN(const JsonValue target, root.at("target"));
  HB_ASSIGN(question.target, target.as_int(0, kLargestInEquation));
  return {};
}

// As the model's is read (final_answer()): one line, without the white space around it. Another would never be right.
Status read_exact_answer(const JsonValue& root, std::string& out) {
  HB_TRY(read_question_text(root, "answer", out));
  out = std::string(trim(out));
  HB_ASSIGN(const JsonValue answer, root.at("answer"));
  if (out.empty()) return answer.error("is empty");
  if (out.find('\n') != std::string::npos) return answer.error("found several lines, expected one");
  return {};
}

constexpr std::string_view kInstruction = "\n\nPlease reason step by step, and put your final answer within \\boxed{}.";

// A line of a benchmark as it is published: `key` holds the question.
Status read_benchmark(const JsonValue& root, std::string_view key, std::string_view task, int64_t line, Question& out) {
  out.task = task;
  out.grading = Grading::kMath;
  HB_TRY(read_question_text(root, key, out.prompt));
  out.prompt += kInstruction;
  const auto answer = root.find_set("answer");
  if (answer && !answer->is_string()) {  // AIME has numbers
    HB_ASSIGN(const int64_t number, answer->as_int(-kLargest, kLargest));
    out.answer = std::to_string(number);
  } else {
    HB_TRY(read_question_text(root, "answer", out.answer));
  }
  if (const size_t mark = out.answer.rfind("####"); mark != std::string::npos) {
    out.answer = out.answer.substr(std::min(out.answer.find_first_not_of(' ', mark + 4), out.answer.size()));
    if (out.answer.empty()) return root.error("has nothing behind ####");
  }
  out.id = fmt::format("{}-{:04}", task, line);
  if (const auto id = root.find_set("id"); id && id->is_string()) HB_TRY(read_question_text(root, "id", out.id));
  return {};
}

struct Place {
  const std::string& name;  // of the file
  int64_t line;             // from 1
  int64_t number;           // of the question, from 0
  uint64_t order_seed;
};

Result<Question> parse_question(std::string_view text, const Place& place) {
  const int64_t line = place.line;
  const std::string name = line_name(place.name, line);
  HB_ASSIGN(const auto document, parse_json_line(without_python_numbers(text), place.name, line));
  const JsonValue root = document->root();
  Question question;
  question.number = place.number;
  if (is_choice_line(root)) {
    HB_TRY(read_choice_line(root, line, place.order_seed, question));
    return question;
  }
  if (is_mrcr_line(root)) {
    HB_TRY(read_mrcr_line(root, name, line, question));
    return question;
  }
  if (is_code_line(root)) {
    HB_TRY(read_code_line(root, name, line, question));
    return question;
  }
  if (!root.find("prompt") && !root.find("task")) {
    if (root.find("problem")) {
      HB_TRY(read_benchmark(root, "problem", "math", line, question));
      return question;
    }
    if (root.find("question")) {
      HB_TRY(read_benchmark(root, "question", "gsm8k", line, question));
      return question;
    }
  }
  HB_TRY(read_question_text(root, "id", question.id));
  HB_TRY(read_question_text(root, "task", question.task));
  HB_TRY(read_question_text(root, "prompt", question.prompt));
  const bool countdown = question.task == "countdown";
  if (!countdown || root.find_set("answer")) HB_TRY(read_exact_answer(root, question.answer));
  if (const auto level = root.find_set("level")) {
    HB_ASSIGN(question.level, level->as_int(0, 1000));
  }
  if (countdown) {
    question.grading = Grading::kCountdown;
    HB_TRY(read_countdown(root, question));
  }
  return question;
}

}  // namespace

Result<std::vector<Question>> parse_questions(std::string_view text, const std::string& name, uint64_t order_seed) {
  std::vector<Question> questions;
  std::unordered_set<std::string> ids;
  for (int64_t line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    const std::string_view row = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (row.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    const Place place{name, line, static_cast<int64_t>(questions.size()), order_seed};
    HB_ASSIGN(Question question, parse_question(row, place));
    if (!ids.insert(question.id).second) {
      return invalid_data(fmt::format("{}, line {}: the id {} comes twice", name, line, quote(question.id)));
    }
    questions.push_back(std::move(question));
  }
  if (questions.empty()) return invalid_data(name + ": holds no question; expected one JSON object a line");
  return questions;
}

Result<std::vector<Question>> read_questions(const std::string& path, uint64_t order_seed) {
  HB_ASSIGN(const auto file, open_guarded(path));
  const auto bytes = file->bytes();
  if (bytes.size() > kMostBytes) {
    return invalid_data(fmt::format("{}: is {} bytes long, the limit of a question file is {}; split it",
                                    quote_path(path), bytes.size(), kMostBytes));
  }
  return parse_questions({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path, order_seed);
}

uint64_t fingerprint(std::span<const Question> questions) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](std::string_view text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    hash = (hash ^ 0xFFu) * 0x100000001b3u;  // ends a text: no UTF-8 holds it
  };
  const auto add_number = [&](int64_t number) { add(std::to_string(number)); };
  for (size_t i = 0; i < questions.size(); ++i) {
    const Question& q = questions[i];
    add(q.id);
    add(q.prompt);
    add(q.answer);
    // What most questions lack adds nothing to theirs.
    if (q.number != static_cast<int64_t>(i)) add("number"), add_number(q.number);  // its draws are made of it
    if (q.grading == Grading::kCountdown) {
      add("countdown");
      for (const int64_t number : q.numbers) add_number(number);
      add("target"), add_number(q.target);
    }
    for (const QuestionTurn& turn : q.before) add(turn.role), add(turn.content);
    if (!q.prefix.empty()) add("prefix"), add(q.prefix);
    if (!q.stem.empty()) add(q.stem), add(q.continued ? "continued" : "asked");
    for (const std::string& choice : q.choices) add("choice"), add(choice);
    if (!q.code) continue;
    for (const std::string& part : {q.code->before, q.code->checks, q.code->function}) add(part);
    for (const CodeTests::Test& test : q.code->tests) add(test.input), add(test.output);
  }
  return hash;
}

}  // namespace halfbyte
