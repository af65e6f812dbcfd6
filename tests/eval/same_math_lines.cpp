// Reads lines of two answers with a tab between them and prints 1 or 0 for each: what math_grader_test.py compares.
#include <cstdio>
#include <iostream>
#include <string>

#include "eval/math_answer.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const size_t tab = line.find('\t');
    if (tab == std::string::npos) return 2;
    std::puts(halfbyte::same_math(line.substr(0, tab), line.substr(tab + 1)) ? "1" : "0");
  }
}
