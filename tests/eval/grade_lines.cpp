// Reads question lines, each followed by "completion", and prints 1 or 0 for each: what grader_parity_test.py compares.
#include <cstdio>
#include <iostream>
#include <string>

#include "base/json.h"
#include "eval/grader.h"
#include "eval/question.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto questions = halfbyte::parse_questions(line, "stdin");
    const auto document = halfbyte::JsonDocument::parse(line, "stdin");
    if (!questions.ok() || !document.ok()) return 2;
    const auto completion = (*document)->root().find("completion");
    if (!completion || !completion->is_string()) return 2;
    std::puts(halfbyte::grade(questions->front(), completion->as_string().value()) ? "1" : "0");
  }
}
