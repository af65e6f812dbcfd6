#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/evaluate.h"
#include "eval/question.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

Question read(const std::string& line) {
  auto questions = parse_questions(line, "q.jsonl");
  EXPECT_TRUE(questions.ok()) << questions.status().message();
  return questions.ok() ? questions->front() : Question();
}

TEST(CodeLines, AreReadAsPublished) {
  const Question human = read(
      R"({"task_id": "HumanEval/0", "prompt": "def f(x):\n", "entry_point": "f", "canonical_solution": "    return x\n", "test": "def check(c):\n    assert c(1) == 1\n"})");
  EXPECT_EQ(human.id, "HumanEval/0");
  EXPECT_EQ(human.task, "humaneval");
  EXPECT_EQ(human.grading, Grading::kCode);
  EXPECT_EQ(human.code->before, "def f(x):\n");
  EXPECT_THAT(human.code->checks, HasSubstr("\ncheck(f)\n"));
  EXPECT_THAT(human.prompt, HasSubstr("```python\ndef f(x):\n```"));
  const Question mbpp = read(
      R"({"task_id": 7, "prompt": "Add.", "code": "", "test_imports": ["import math"], "test_list": ["assert add(1, 2) == 3", "assert True"]})");
  EXPECT_EQ(mbpp.id, "mbpp-7");
  EXPECT_EQ(mbpp.code->before, "import math\n");
  EXPECT_EQ(mbpp.code->checks, "\nassert add(1, 2) == 3\nassert True\n");
  EXPECT_THAT(mbpp.prompt, HasSubstr("assert add(1, 2) == 3"));
  const Question program = read(
      R"({"question_id": "abc1", "question_content": "Square.", "starter_code": "", "public_test_cases": "[{\"input\": \"3\", \"output\": \"9\", \"testtype\": \"stdin\"}]", "private_test_cases": [{"input": "2", "output": "4"}], "metadata": "{}"})");
  EXPECT_EQ(program.id, "abc1");
  EXPECT_EQ(program.task, "livecodebench");
  ASSERT_EQ(program.code->tests.size(), 2u);
  EXPECT_EQ(program.code->tests[1].output, "4");
  EXPECT_EQ(program.code->function, "");
  const Question method = read(
      R"({"question_id": "1", "question_content": "q", "starter_code": "class Solution:\n    def g(self, x): ", "public_test_cases": "[{\"input\": \"3\", \"output\": \"9\"}]", "metadata": "{\"func_name\": \"g\"}"})");
  EXPECT_EQ(method.code->function, "g");
  const Question own =
      read(R"({"id": "o", "task": "t", "prompt": "p", "function": "f", "tests": [{"input": "1", "output": "2"}]})");
  EXPECT_EQ(own.id, "o");
  EXPECT_EQ(own.code->function, "f");
}

TEST(CodeLines, RefusalsSayWhatWasFoundAndWhatToDo) {
  const auto refused = [](const std::string& line, const char* expected) {
    const auto questions = parse_questions("\n" + line, "q.jsonl");
    ASSERT_FALSE(questions.ok()) << line;
    EXPECT_THAT(questions.status().message(), HasSubstr(expected));
    EXPECT_THAT(questions.status().message(), HasSubstr("q.jsonl, line 2"));
  };
  refused(R"({"prompt": "p", "entry_point": "f(); import os", "test": "t"})", "expected the name of a function");
  refused(R"({"prompt": "p", "test_list": []})", "holds no test");
  refused(R"({"question_content": "q", "public_test_cases": "[]", "private_test_cases": "eJxy"})",
          "halfbyte.tasks.livecodebench");
  refused(R"({"question_content": "q", "public_test_cases": "[]"})", "has no tests");
  refused(R"({"question_content": "q", "public_test_cases": "[{\"input\": 1, \"output\": \"\"}]"})", "input");
  refused(
      R"({"question_content": "q", "starter_code": "x", "public_test_cases": "[{\"input\": \"\", \"output\": \"\"}]", "metadata": "{}"})",
      "func_name");
  refused(R"({"id": "1", "task": "t", "prompt": "p", "checks": ""})", "has no tests");
  refused(R"({"id": "1", "task": "t", "prompt": "p", "checks": "c", "tests": [{"input": "", "output": ""}]})",
          "one of them");
}

// A call whose arguments or result are no JSON can never be right.
TEST(CodeLines, CallsAreJson) {
  const auto message = [](const std::string& input, const std::string& output) {
    const std::string start = R"({"id": "1", "task": "t", "prompt": "p", "function": "f", "tests": [{"input": ")";
    return parse_questions(start + input + R"(", "output": ")" + output + "\"}]}", "q.jsonl").status().message();
  };
  EXPECT_EQ(
      message("abc", "9"),
      "q.jsonl, line 1: tests[0].input: line 1 is no JSON: found 'abc', expected the arguments of the function, one a "
      "line, a text in double quotes");
  EXPECT_THAT(message("1\\n\\n2", "9"), HasSubstr("tests[0].input: line 2 is no JSON: found ''"));
  EXPECT_THAT(message("1, 2", "9"), HasSubstr("line 1 is no JSON: found '1, 2'"));
  EXPECT_THAT(message("1", "'a'"),
              HasSubstr("q.jsonl, line 1: tests[0].output: is no JSON: found ''a'', expected what"));
  EXPECT_THAT(message("1", "None"), HasSubstr("None as null"));
  EXPECT_THAT(message("1", ""), HasSubstr("tests[0].output: is no JSON"));
  EXPECT_EQ(message("", "9"), "") << "no arguments";
  EXPECT_EQ(message(R"( \"abc\" \n[1, {\"a\": -Infinity}]\n)", "NaN"), "") << "what Python's json reads";
  EXPECT_EQ(message(std::string(2000, '7'), std::string(2000, '7')), "") << "integers of any length";
  const auto stored = parse_questions(
      R"({"question_content": "q", "starter_code": "x", "public_test_cases": "[{\"input\": \"abc\", \"output\": \"9\"}]", "metadata": "{\"func_name\": \"g\"}"})",
      "q.jsonl");
  EXPECT_THAT(stored.status().message(), HasSubstr("public_test_cases: [0].input: line 1 is no JSON"));
  const auto program = parse_questions(
      R"({"id": "1", "task": "t", "prompt": "p", "tests": [{"input": "abc", "output": "'a'"}]})", "q.jsonl");
  EXPECT_TRUE(program.ok()) << "a program reads and writes what it likes: " << program.status().message();
}

TEST(CodeQuestions, NeedASandbox) {
  std::vector<Question> questions(1);
  EXPECT_TRUE(check_code(questions, false).ok());
  questions.push_back(read(R"({"id": "o", "task": "t", "prompt": "p", "checks": "assert True"})"));
  EXPECT_TRUE(check_code(questions, true).ok());
  EXPECT_THAT(check_code(questions, false).message(), HasSubstr("'o' is answered by code"));
}

}  // namespace
}  // namespace halfbyte
