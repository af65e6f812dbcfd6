// Reads question lines, each followed by "completion", and prints 1 or 0 for each: what grader_parity_test.py compares, and
// code_grader_test.py, which gets "no sandbox: ..." where this kernel gives none.
#include <cstdio>
#include <iostream>
#include <optional>
#include <string>

#include "base/json.h"
#include "eval/code_grader.h"
#include "eval/grader.h"
#include "eval/question.h"

int main() {
  std::optional<halfbyte::Result<halfbyte::Sandbox>> sandbox;
  for (std::string line; std::getline(std::cin, line);) {
    const auto questions = halfbyte::parse_questions(line, "stdin");
    const auto document = halfbyte::JsonDocument::parse(line, "stdin");
    if (!questions.ok() || !document.ok()) return 2;
    const auto completion = (*document)->root().find("completion");
    if (!completion || !completion->is_string()) return 2;
    const std::string text(completion->as_string().value());
    const halfbyte::Question& question = questions->front();
    if (!question.code) {
      std::puts(halfbyte::grade(question, text) ? "1" : "0");
      continue;
    }
    if (!sandbox) sandbox.emplace(halfbyte::Sandbox::open({}));
    if (!sandbox->ok()) {
      std::puts(("no sandbox: " + sandbox->status().message()).c_str());
      return 0;
    }
    const auto right = halfbyte::grade_code(**sandbox, *question.code, halfbyte::answer_of(question, text));
    if (!right.ok()) return 2;
    std::puts(*right ? "1" : "0");
  }
}
