#include "eval/question.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>

#include "eval/grader.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

TEST(Questions, AreReadLineByLine) {
  const auto questions = parse_questions(
      R"({"id": "a", "task": "word", "level": 3, "prompt": "how many?", "answer": "42"})"
      "\n\n"
      R"({"id": "b", "task": "countdown", "prompt": "make 9", "answer": "4+5=9", "numbers": [4, 5], "target": 9, "more": 1})",
      "q.jsonl");
  ASSERT_TRUE(questions.ok()) << questions.status().message();
  ASSERT_EQ(questions->size(), 2u);
  EXPECT_EQ((*questions)[0].level, 3);
  EXPECT_EQ((*questions)[0].prompt, "how many?");
  EXPECT_EQ((*questions)[1].number, 1);
  EXPECT_EQ((*questions)[1].numbers, (std::vector<int64_t>{4, 5}));
  EXPECT_EQ((*questions)[1].target, 9);
}

TEST(Questions, ACountdownNeedsNoAnswer) {
  const auto questions =
      parse_questions(R"({"id": "a", "task": "countdown", "prompt": "p", "numbers": [4, 5], "target": 9})", "q.jsonl");
  ASSERT_TRUE(questions.ok()) << questions.status().message();
  EXPECT_TRUE(grade(questions->front(), "answer: 5+4=9"));
  EXPECT_FALSE(grade(questions->front(), "answer: 5+4=10"));
  EXPECT_FALSE(grade(questions->front(), "answer: ")) << "nothing is not the answer that is not there";
}

// The white space around the model's answer is taken away too.
TEST(Questions, WhiteSpaceAroundAnAnswerDoesNotCount) {
  const auto questions = parse_questions(R"({"id": "a", "task": "t", "prompt": "p", "answer": " 4 6\t\n"})", "q.jsonl");
  ASSERT_TRUE(questions.ok()) << questions.status().message();
  EXPECT_EQ(questions->front().answer, "4 6");
  EXPECT_TRUE(grade(questions->front(), "<think>k</think>answer:  4 6 "));
  EXPECT_FALSE(grade(questions->front(), "answer: 46"));
}

TEST(Questions, RefusalsNameTheLine) {
  const std::string good = R"({"id": "a", "task": "word", "prompt": "p", "answer": "1"})";
  const auto refused = [&](const std::string& second, const char* expected) {
    const auto questions = parse_questions(good + "\n" + second, "q.jsonl");
    ASSERT_FALSE(questions.ok()) << second;
    EXPECT_THAT(questions.status().message(), HasSubstr(expected));
    EXPECT_THAT(questions.status().message(), HasSubstr("q.jsonl, line 2"));
  };
  refused("{", "q.jsonl, line 2, column 2: expected");
  refused("\xEF\xBB\xBF nonsense", "q.jsonl, line 2, column 2: expected");
  refused("[]", "line 2");
  refused(good, "comes twice");
  refused(R"({"id": "b", "task": "word", "prompt": "p"})", "answer");
  refused(R"({"id": "b", "task": "word", "prompt": "", "answer": "1"})", "prompt");
  refused(R"({"id": "b", "task": "word", "prompt": "p", "answer": " \n"})", "answer: is empty");
  refused(R"({"id": "b", "task": "word", "prompt": "p", "answer": "1\n2"})",
          "answer: found several lines, expected one");
  refused(R"({"id": "b", "task": "countdown", "prompt": "p"})", "numbers");
  const auto countdown = [](const std::string& numbers) {
    return R"({"id": "b", "task": "countdown", "prompt": "p", "target": 1, "numbers": )" + numbers + "}";
  };
  refused(countdown("[]"), "numbers: found a list of 0, expected 2 to 16 numbers");
  refused(countdown("[1]"), "numbers: found a list of 1, expected 2 to 16 numbers");
  refused(countdown(R"(["1", 2])"), "numbers[0]: found a string, expected an integer");
  refused(countdown("[1, 1000000000]"), "numbers[1]: found 1000000000, expected an integer from 0 to 999999999");
  refused(countdown("7"), "numbers: found an integer, expected an array");
  refused(R"({"id": "b", "task": "countdown", "prompt": "p", "numbers": [1, 2]})", "target");
  refused(R"({"id": "b", "task": "word", "level": -1, "prompt": "p", "answer": "1"})", "level");
  EXPECT_FALSE(parse_questions("\n \n", "q.jsonl").ok());
  EXPECT_EQ(read_questions("no such file").status().code(), StatusCode::kNotFound);
}

// Python writes NaN where a table has nothing.
TEST(Questions, ANumberThatIsNoneIsNoText) {
  const auto message = [](const std::string& line) { return parse_questions(line, "q.jsonl").status().message(); };
  EXPECT_EQ(message(R"({"id": "a", "task": "t", "prompt": NaN, "answer": "1"})"),
            "q.jsonl, line 1: prompt: found NaN, expected a string");
  EXPECT_EQ(message(R"({"problem": "p", "answer": Infinity})"),
            "q.jsonl, line 1: answer: found Infinity, expected a string");
  EXPECT_EQ(message(R"({"question": "p", "choices": ["a", NaN], "answer": 0})"),
            "q.jsonl, line 1: choices[1]: found NaN, expected a string");
  const auto other = parse_questions(R"({"problem": "p", "answer": "NaN", "subject": NaN})", "q.jsonl");
  ASSERT_TRUE(other.ok()) << "a text, and a member that nobody reads: " << other.status().message();
  EXPECT_EQ(other->front().answer, "NaN");
}

TEST(Questions, AreBounded) {
  const std::string path = std::string(HALFBYTE_TEST_TMP) + "/large.jsonl";
  std::ofstream(path) << "{}";
  std::filesystem::resize_file(path, (uintmax_t{4} << 30) + 1);  // a hole
  const auto questions = read_questions(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(questions.ok());
  EXPECT_EQ(questions.status().code(), StatusCode::kInvalidData);
  EXPECT_THAT(questions.status().message(),
              HasSubstr("is 4294967297 bytes long, the limit of a question file is 4294967296"));
}

TEST(Questions, WhatADownloadLeavesIsNamed) {
  const std::string path = std::string(HALFBYTE_TEST_TMP) + "/pointer.jsonl";
  std::ofstream(path) << "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n";
  EXPECT_THAT(read_questions(path).status().message(), HasSubstr("Git LFS"));
}

// Everything that an answer or its grade depends on.
TEST(Questions, FingerprintsTellThemApart) {
  const auto of = [](auto change) {
    Question q;
    q.id = "a", q.prompt = "p", q.answer = "1";
    change(q);
    return fingerprint(std::vector{q});
  };
  const auto code = [](CodeTests tests) {
    return [tests](Question& q) { q.code = std::make_shared<CodeTests>(tests); };
  };
  const std::vector<uint64_t> all{
      of([](Question&) {}),
      of([](Question& q) { q.id = "b"; }),
      of([](Question& q) { q.prompt = "b"; }),
      of([](Question& q) { q.answer = "b"; }),
      of([](Question& q) {
        q.before = {{"user", "b"}};
      }),
      of([](Question& q) {
        q.before = {{"system", "b"}};
      }),
      of([](Question& q) { q.number = 1; }),
      of([](Question& q) { q.grading = Grading::kCountdown; }),
      of([](Question& q) {
        q.grading = Grading::kCountdown, q.numbers = {1, 2};
      }),
      of([](Question& q) {
        q.grading = Grading::kCountdown, q.numbers = {1, 2}, q.target = 3;
      }),
      of([](Question& q) { q.grading = Grading::kCountdown, q.numbers = {12}, q.target = 3; }),
      of([](Question& q) { q.prefix = "b"; }),
      of([](Question& q) { q.stem = "b"; }),
      of([](Question& q) { q.stem = "b", q.continued = true; }),
      of([](Question& q) { q.choices = {"b"}; }),
      of(code({})),
      of(code({.before = "b", .checks = "", .function = "", .tests = {}})),
      of(code({.before = "", .checks = "b", .function = "", .tests = {}})),
      of(code({.before = "", .checks = "", .function = "b", .tests = {}})),
      of(code({.before = "", .checks = "", .function = "", .tests = {{"b", ""}}})),
  };
  EXPECT_EQ(std::set<uint64_t>(all.begin(), all.end()).size(), all.size());
  EXPECT_EQ(all[0], 0xa14d3763f90de348u) << "files of earlier versions go on";
}

}  // namespace
}  // namespace halfbyte
