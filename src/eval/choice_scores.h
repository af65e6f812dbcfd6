// Multiple choice without a word from the model: each choice is scored behind the question, and the likeliest is the answer.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "eval/bootstrap.h"
#include "eval/evaluate.h"
#include "eval/question.h"
#include "eval/results.h"
#include "halfbyte/chat.h"
#include "halfbyte/engine.h"

namespace halfbyte {

// What is scored: a choice's text behind "Question: ...\nAnswer:" (behind the stem alone where choices continue it), or its
// letter behind the stem, the lettered choices and "Answer:".
enum class ChoiceForm : uint8_t { kText, kLetter };

// The two texts of a score: log p(continuation | context). No chat template.
struct ChoicePair {
  std::string context, continuation;
};
ChoicePair choice_pair(const Question& question, size_t choice, ChoiceForm form);

// The length that a choice's log-likelihood is divided by: characters of what stands behind its space.
double choice_length(const ChoicePair& pair);

// Adds what `results` lacks, one result a question: `answer` and `correct` by the sum of the log-probabilities, `correct_norm`
// by the sum over the length; of equal ones the earlier wins. Returns the tokens scored; kCancelled when stopped.
Result<int64_t> score_choices(Engine& engine, const TextModel& text, std::span<const Question> questions,
                              ChoiceForm form, ResultsFile& results, const OnEvalProgress& on_progress = nullptr);

// Tokens of the longest context with its choice.
Result<LongestText> longest_choice(const TextModel& text, std::span<const Question> questions, ChoiceForm form);

struct ChoiceSummary {
  int64_t questions = 0;
  Interval accuracy, accuracy_norm;
};
ChoiceSummary summarise_choices(std::span<const SampleResult> results);

}  // namespace halfbyte
