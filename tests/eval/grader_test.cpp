#include "eval/grader.h"

#include <gtest/gtest.h>

namespace halfbyte {
namespace {

Question countdown(std::vector<int64_t> numbers, int64_t target) {
  Question q;
  q.task = "countdown";
  q.numbers = std::move(numbers);
  q.target = target;
  return q;
}

TEST(FinalAnswer, IsBehindTheReasoning) {
  EXPECT_EQ(final_answer("<think>\n1+1=2\n</think>\n\nanswer: 2<|im_end|>"), "2");
  EXPECT_EQ(final_answer("answer: 2"), "2");
  EXPECT_EQ(final_answer("\n\nanswer:  2  \n"), "2");
  EXPECT_EQ(final_answer("<think>a</think>answer: 1</think>answer: 2"), "2");
  EXPECT_EQ(final_answer("<think>\nanswer: 2\n</think>\n\n"), std::nullopt);
  EXPECT_EQ(final_answer("<think>\nanswer: 2"), std::nullopt) << "cut off in its reasoning";
  EXPECT_EQ(final_answer("The answer: 2"), std::nullopt);
  EXPECT_EQ(final_answer("answer: 2\nor 3"), std::nullopt);
  EXPECT_EQ(final_answer("answer:2"), std::nullopt);
  EXPECT_EQ(final_answer(""), std::nullopt);
}

TEST(Grade, NumbersAreTheSameText) {
  Question q;
  q.task = "word";
  q.answer = "42";
  EXPECT_TRUE(grade(q, "<think>\nx\n</think>\n\nanswer: 42"));
  for (const char* wrong : {"answer: 042", "answer: 42.0", "answer: 4", "answer: 421", "answer: -42", "42"}) {
    EXPECT_FALSE(grade(q, wrong)) << wrong;
  }
}

TEST(Countdown, UsesEveryNumberOnce) {
  const Question q = countdown({3, 7, 12}, 33);
  EXPECT_TRUE(grade_countdown(q, "3*7=21, 12+21=33"));
  EXPECT_TRUE(grade_countdown(q, "7*3=21, 21+12=33"));
  for (const char* wrong : {"", "3*7=21", "12+21=33", "3*7=21, 21+21=42", "3*7=22, 22+12=34", "3*7=21,12+21=33",
                            "3*7=21, 12+21=33, ", "3*7=21, 12+21=33, 33*1=33", "3-7=-4, 12-4=8", " 3*7=21, 12+21=33",
                            "3*7=21, 12+21=33x", "3^7=21, 12+21=33", "9999999999*7=3, 3+12=33", "3*7=21, 12+21="}) {
    EXPECT_FALSE(grade_countdown(q, wrong)) << wrong;
  }
}

TEST(Countdown, DividesExactly) {
  EXPECT_TRUE(grade_countdown(countdown({12, 4}, 3), "12/4=3"));
  EXPECT_FALSE(grade_countdown(countdown({7, 2}, 3), "7/2=3"));
  EXPECT_FALSE(grade_countdown(countdown({7, 0}, 0), "7/0=0"));
  EXPECT_TRUE(grade_countdown(countdown({5, 5, 5}, 5), "5-5=0, 0+5=5"));
}

}  // namespace
}  // namespace halfbyte
