#include "eval/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "eval/choice_scores.h"
#include "eval/grader.h"

namespace halfbyte {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Question read(const std::string& line, uint64_t order_seed = 0) {
  auto questions = parse_questions(line, "q.jsonl", order_seed);
  EXPECT_TRUE(questions.ok()) << questions.status().message();
  return questions.ok() ? questions->front() : Question();
}

TEST(ChoiceLines, AreReadAsPublished) {
  const Question mmlu = read(R"({"question": "1 + 1?", "subject": "s", "choices": ["1", "2"], "answer": 1})");
  EXPECT_EQ(mmlu.grading, Grading::kChoice);
  EXPECT_EQ(mmlu.answer, "B");
  EXPECT_EQ(mmlu.id, "choice-0001");
  EXPECT_EQ(
      mmlu.prompt,
      "1 + 1?\n\nA. 1\nB. 2\n\nPlease reason step by step, and put the letter of your final answer within \\boxed{}.");
  const Question pro = read(
      R"({"question_id": 70, "question": "q", "options": ["a", "b", "c"], "answer": "C", "answer_index": 2, "cot_content": ""})");
  EXPECT_EQ(pro.id, "mmlu-pro-70");
  EXPECT_EQ(pro.task, "mmlu-pro");
  EXPECT_EQ(pro.answer, "C");
  const Question arc = read(
      R"({"id": "Mercury_1", "question": "q", "choices": {"text": ["a", "b"], "label": ["1", "2"]}, "answerKey": "2"})");
  EXPECT_EQ(arc.id, "Mercury_1");
  EXPECT_EQ(arc.answer, "B");
  const Question ai2 = read(
      R"({"id": "x", "question": {"stem": "q", "choices": [{"text": "a", "label": "A"}, {"text": "b", "label": "B"}]}, "answerKey": "B"})");
  EXPECT_EQ(ai2.stem, "q");
  EXPECT_EQ(ai2.answer, "B");
  const Question own =
      read(R"({"id": "1", "task": "t", "prompt": "q", "choices": ["a", "b"], "answer": "A", "level": 3})");
  EXPECT_EQ(own.task, "t");
  EXPECT_EQ(own.level, 3);
  EXPECT_EQ(own.answer, "A");
}

TEST(ChoiceLines, HellaSwagIsJoinedAsItsHarnessDoes) {
  const Question q = read(
      R"({"ind": 4, "activity_label": "Roofing", "ctx_a": "A man sits. [header] He", "ctx_b": "he Falls", "ctx": "no", "endings": ["down [step] now.", "up."], "label": "1"})");
  EXPECT_EQ(q.stem, "Roofing: A man sits. He He falls");
  EXPECT_THAT(q.choices, ElementsAre("down now.", "up."));
  EXPECT_EQ(q.answer, "B");
  const ChoicePair pair = choice_pair(q, 1, ChoiceForm::kText);
  EXPECT_EQ(pair.context, q.stem);
  EXPECT_EQ(pair.continuation, " up.");
}

TEST(ChoiceLines, GpqaIsPutInOrderBySeed) {
  const std::string line =
      R"({"Question": "q", "Correct Answer": "right\n", "Incorrect Answer 1": "x", "Incorrect Answer 2": "y", "Incorrect Answer 3": "z", "Record ID": "rec1"})";
  std::set<std::string> letters, orders;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const Question q = read(line, seed);
    EXPECT_EQ(q.id, "rec1");
    EXPECT_EQ(q.prompt, read(line, seed).prompt) << "the same seed, the same order";
    ASSERT_EQ(q.choices.size(), 4u);
    EXPECT_EQ(q.choices[static_cast<size_t>(q.answer[0] - 'A')], "right");
    letters.insert(q.answer);
    std::string order;
    for (const std::string& choice : q.choices) order += choice;
    orders.insert(order);
  }
  EXPECT_EQ(letters.size(), 4u) << "the right one stands everywhere";
  EXPECT_GT(orders.size(), 12u);
}

TEST(ChoiceLines, RefusalsSayWhatWasFoundAndExpected) {
  const auto refused = [](const std::string& line, const char* expected) {
    const auto questions = parse_questions("\n" + line, "q.jsonl");
    ASSERT_FALSE(questions.ok()) << line;
    EXPECT_THAT(questions.status().message(), HasSubstr(expected));
    EXPECT_THAT(questions.status().message(), HasSubstr("q.jsonl, line 2"));
  };
  refused(R"({"question": "q", "choices": ["a", "b"], "answer": 2})", "from 0 to 1");
  refused(R"({"question": "q", "choices": ["a", "b"], "answer": "C"})",
          "found 'C', expected an index from 0 to 1 or a letter from A to B");
  refused(R"({"question": "q", "choices": ["a", "b"]})", "names no right choice");
  refused(R"({"question": "q", "choices": ["a"], "answer": 0})", "holds 1 choices");
  refused(R"({"question": "q", "choices": ["a", " "], "answer": 0})", "is empty");
  refused(R"({"question": "q", "choices": ["a", "a"], "answer": 0})",
          "q.jsonl, line 2: its choices A and B are both 'a', the right answer; expected different ones");
  refused(R"({"question": "q", "choices": ["b", "a ", "c", "a"], "answer": "D"})", "choices B and D are both 'a'");
  refused(R"({"question": "q", "choices": "a", "answer": 0})", "expected an array");
  refused(R"({"choices": ["a", "b"], "answer": 0})", "prompt");
  refused(R"({"question": "q", "options": ["a", "b"], "answer": "A", "answer_index": 1})", "expected the same");
  refused(R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A"]}, "answerKey": "A"})", "1 labels for 2");
  refused(R"({"question": "q", "choices": {"text": ["a", "b"], "label": ["A", "B"]}, "answerKey": "E"})",
          "one of the labels");
  refused(R"({"Question": "q", "Correct Answer": "a", "Incorrect Answer 1": "b"})", "Incorrect Answer 2");
}

// MMLU and ARC are read as they were published, which is with these.
TEST(ChoiceLines, EqualChoicesOfPublishedSetsAreTaken) {
  EXPECT_EQ(read(R"({"question": "q", "subject": "s", "choices": ["a", "b", "a"], "answer": 2})").answer, "C");
  EXPECT_EQ(read(R"({"question": "q", "choices": ["a", "b", "a"], "answer": 1})").answer, "B");
}

TEST(ChoiceAnswer, IsALetterHoweverItIsWritten) {
  Question q;
  q.grading = Grading::kChoice;
  q.choices = {"a dog", "C major", "A", "the cat"};
  q.answer = "D";
  for (const char* right : {"\\boxed{D}",
                            "so \\boxed{(D)}.",
                            "\\boxed{\\text{D}}",
                            "\\boxed{\\textbf{(D) }}",
                            "\\boxed{D. the cat}",
                            "\\boxed{the cat}",
                            "The answer is (D).",
                            "the answer is D",
                            "The correct answer is **D**",
                            "**Answer:** D",
                            "Answer:\nD\n",
                            "ANSWER: D) the cat",
                            "The answer is D, since it purrs",
                            "D",
                            "(D)",
                            "**D.**",
                            "D. the cat",
                            "the cat",
                            "\\boxed{A} no, \\boxed{D}",
                            "<think>\\boxed{A}</think>\\boxed{D}",
                            "The answer is A. No: the answer is D.",
                            "$\\boxed{D}$"}) {
    EXPECT_TRUE(grade(q, right)) << right << " read as " << answer_of(q, right);
  }
  for (const char* wrong :
       {"", "\\boxed{}", "\\boxed{E}", "\\boxed{DD}", "\\boxed{d}", "D is what I would not choose", "Dogs",
        "The answer is Dog", "<think>\\boxed{D}", "the answer is D or A. \\boxed{B}", "answer", "The answer is"}) {
    EXPECT_FALSE(grade(q, wrong)) << wrong;
  }
  EXPECT_EQ(choice_final_answer(q, "\\boxed{C major}"), "B") << "a choice's own text comes before its first letter";
  EXPECT_EQ(choice_final_answer(q, "A dog"), std::nullopt);
}

TEST(ChoiceScores, PairsAreWhatIsScored) {
  const Question q = read(R"({"question": "1 + 1?", "choices": ["é", "22"], "answer": 1})");
  const ChoicePair text = choice_pair(q, 0, ChoiceForm::kText), letter = choice_pair(q, 1, ChoiceForm::kLetter);
  EXPECT_EQ(text.context + "|" + text.continuation, "Question: 1 + 1?\nAnswer:| é");
  EXPECT_EQ(letter.context + "|" + letter.continuation, "1 + 1?\nA. é\nB. 22\nAnswer:| B");
  EXPECT_EQ(choice_length(text), 1) << "characters, not bytes";
  EXPECT_EQ(choice_length(choice_pair(q, 1, ChoiceForm::kText)), 2);
}

TEST(ChoiceScores, AccuraciesHaveTheirOwnIntervals) {
  std::vector<SampleResult> results(40);
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].correct = i % 4 == 0;
    results[i].correct_norm = i % 2 == 0;
  }
  const ChoiceSummary s = summarise_choices(results);
  EXPECT_EQ(s.questions, 40);
  EXPECT_DOUBLE_EQ(s.accuracy.mean, .25);
  EXPECT_DOUBLE_EQ(s.accuracy_norm.mean, .5);
  EXPECT_LT(s.accuracy.low, .25);
  EXPECT_GT(s.accuracy_norm.high, .5);
}

}  // namespace
}  // namespace halfbyte
