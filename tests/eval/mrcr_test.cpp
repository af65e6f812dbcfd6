#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "eval/compare.h"
#include "eval/evaluate.h"
#include "eval/grader.h"
#include "eval/sequence_ratio.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

const std::string kLine =
    R"({"prompt": "[{\"role\": \"user\", \"content\": \"a poem\"}, {\"role\": \"assistant\", \"content\": \"rain\"}, {\"role\": \"user\", \"content\": \"again\"}]", "answer": "xYz9rain", "random_string_to_prepend": "xYz9", "n_needles": 2})";

Question read(const std::string& line) {
  auto questions = parse_questions(line, "q.jsonl");
  EXPECT_TRUE(questions.ok()) << questions.status().message();
  return questions.ok() ? questions->front() : Question();
}

TEST(Mrcr, LinesAreReadAsPublished) {
  const Question q = read(kLine);
  EXPECT_EQ(q.grading, Grading::kSequence);
  EXPECT_EQ(q.id, "mrcr-0001");
  EXPECT_EQ(q.level, 2);
  ASSERT_EQ(q.before.size(), 2u);
  EXPECT_EQ(q.before[1].role, "assistant");
  EXPECT_EQ(q.before[1].content, "rain");
  EXPECT_EQ(q.prompt, "again");
  const Question list = read(
      R"({"id": "m", "messages": [{"role": "user", "content": "u"}], "answer": "a", "random_string_to_prepend": "p"})");
  EXPECT_EQ(list.id, "m");
  EXPECT_EQ(list.prompt, "u");
  EXPECT_TRUE(list.before.empty());
}

TEST(Mrcr, RefusalsNameTheLine) {
  const auto refused = [](const std::string& line, const char* expected) {
    const auto questions = parse_questions("\n" + line, "q.jsonl");
    ASSERT_FALSE(questions.ok()) << line;
    EXPECT_THAT(questions.status().message(), HasSubstr(expected));
    EXPECT_THAT(questions.status().message(), HasSubstr("q.jsonl, line 2"));
  };
  refused(R"({"prompt": "no list", "answer": "a", "random_string_to_prepend": "p"})", "prompt");
  refused(R"({"prompt": [], "answer": "a", "random_string_to_prepend": "p"})", "does not end in a message of the user");
  refused(R"({"prompt": [{"role": "tool", "content": "c"}], "answer": "a", "random_string_to_prepend": "p"})",
          "'tool'");
  refused(R"({"prompt": [{"role": "user"}], "answer": "a", "random_string_to_prepend": "p"})", "content");
  refused(R"({"prompt": [{"role": "user", "content": "c"}], "random_string_to_prepend": "p"})", "answer");
}

TEST(Mrcr, ScoresNeedThePrefix) {
  const Question q = read(kLine);
  EXPECT_EQ(sequence_score(q, "xYz9rain"), 1);
  EXPECT_EQ(sequence_score(q, "<think>rain</think>\n\nxYz9rain"), 1);
  EXPECT_EQ(sequence_score(q, "xYz9ra"), 2. * 2 / 6);
  EXPECT_EQ(sequence_score(q, "xYz9"), 0);
  EXPECT_EQ(sequence_score(q, "rain"), 0);
  EXPECT_EQ(sequence_score(q, "Here: xYz9rain"), 0);
  EXPECT_EQ(sequence_score(q, "<think>xYz9rain"), 0);
  EXPECT_EQ(sequence_score(q, ""), 0);
  EXPECT_TRUE(grade(q, "xYz9rain"));
  EXPECT_FALSE(grade(q, "xYz9ra"));
  EXPECT_EQ(answer_of(q, "\nxYz9ra "), "xYz9ra");
}

TEST(SequenceRatio, KnownValues) {  // from Python
  EXPECT_EQ(sequence_ratio("", ""), 1);
  EXPECT_EQ(sequence_ratio("abcd", "bcde"), .75);
  EXPECT_EQ(sequence_ratio("tide", "diet"), .25);
  EXPECT_EQ(sequence_ratio("diet", "tide"), .5) << "it depends on the order";
  EXPECT_EQ(sequence_ratio(std::string(200, 'a'), std::string(199, 'a')), 2. * 199 / 399);
  EXPECT_EQ(sequence_ratio(std::string(199, 'a') + "x", "y" + std::string(199, 'a')), 0)
      << "autojunk: nothing starts a match";
}

TEST(Points, ScoresInPartCountInPart) {
  std::vector<SampleResult> results(4), better;
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].id = "q" + std::to_string(i);
    results[i].answer = "a";
    results[i].reasoning_tokens = static_cast<int64_t>(i);
  }
  better = results;
  results[0].score = .25;
  results[1].correct = true;  // a question of the other kind
  for (SampleResult& r : better) r.score = .5;
  const EvalSummary s = summarise(results, 1);
  EXPECT_DOUBLE_EQ(s.accuracy.mean, 1.25 / 4);
  EXPECT_DOUBLE_EQ(s.majority, 1.25 / 4);
  EXPECT_DOUBLE_EQ(accuracy_change(results, better, 1).mean, .5 - 1.25 / 4);
  const auto comparison = compare_results(results, better);
  ASSERT_TRUE(comparison.ok());
  EXPECT_DOUBLE_EQ(comparison->reference.accuracy, 1.25 / 4);
  EXPECT_DOUBLE_EQ(comparison->change.mean, .5 - 1.25 / 4);
  EXPECT_DOUBLE_EQ(comparison->by_length[0].reference, .25);
  EXPECT_DOUBLE_EQ(comparison->by_length[0].other, .5);
}

}  // namespace
}  // namespace halfbyte
