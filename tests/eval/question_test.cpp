#include "eval/question.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(Questions, RefusalsNameTheLine) {
  const std::string good = R"({"id": "a", "task": "word", "prompt": "p", "answer": "1"})";
  const auto refused = [&](const std::string& second, const char* expected) {
    const auto questions = parse_questions(good + "\n" + second, "q.jsonl");
    ASSERT_FALSE(questions.ok()) << second;
    EXPECT_THAT(questions.status().message(), HasSubstr(expected));
    EXPECT_THAT(questions.status().message(), HasSubstr("q.jsonl, line 2"));
  };
  refused("{", "line 2");
  refused("[]", "line 2");
  refused(good, "comes twice");
  refused(R"({"id": "b", "task": "word", "prompt": "p"})", "answer");
  refused(R"({"id": "b", "task": "word", "prompt": "", "answer": "1"})", "prompt");
  refused(R"({"id": "b", "task": "countdown", "prompt": "p", "answer": "1"})", "numbers");
  refused(R"({"id": "b", "task": "countdown", "prompt": "p", "answer": "1", "numbers": [], "target": 1})", "numbers");
  refused(R"({"id": "b", "task": "word", "level": -1, "prompt": "p", "answer": "1"})", "level");
  EXPECT_FALSE(parse_questions("\n \n", "q.jsonl").ok());
  EXPECT_EQ(read_questions("no such file").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace halfbyte
