#include "eval/choice_scores.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "eval/choice.h"

namespace halfbyte {
namespace {

struct Scored {
  double log_likelihood = 0;
  int64_t context_tokens = 0, tokens = 0;
};

// Tokenised as one text, as the model would read it; scored from the first token that the context alone does not have.
Result<Scored> score_pair(Engine& engine, const TextModel& text, const ChoicePair& pair) {
  HB_ASSIGN(const Prompt context, raw_prompt(text, pair.context));
  HB_ASSIGN(const Prompt whole, raw_prompt(text, pair.context + pair.continuation));
  const auto [own, alone] =
      std::mismatch(whole.tokens.begin(), whole.tokens.end(), context.tokens.begin(), context.tokens.end());
  const auto from = std::max<std::ptrdiff_t>(own - whole.tokens.begin(), 1);
  HB_ASSIGN(const ScoreResult scores, engine.score(whole.tokens, {.logits = false, .entropy = false}));
  return Scored{std::accumulate(scores.logprobs.begin() + (from - 1), scores.logprobs.end(), 0.0), from,
                static_cast<int64_t>(whole.tokens.size())};
}

Result<SampleResult> score_question(Engine& engine, const TextModel& text, const Question& q, ChoiceForm form,
                                    int64_t& tokens) {
  SampleResult r;
  r.id = q.id;
  size_t best = 0, best_norm = 0;
  std::vector<double> norm;
  for (size_t i = 0; i < q.choices.size(); ++i) {
    const ChoicePair pair = choice_pair(q, i, form);
    HB_ASSIGN(const Scored scored, score_pair(engine, text, pair));
    tokens += scored.tokens;
    r.prompt_tokens = std::max(r.prompt_tokens, scored.context_tokens);
    r.log_likelihoods.push_back(scored.log_likelihood);
    norm.push_back(scored.log_likelihood / choice_length(pair));
    if (r.log_likelihoods[i] > r.log_likelihoods[best]) best = i;
    if (norm[i] > norm[best_norm]) best_norm = i;
  }
  r.answer = choice_letter(best);
  r.correct = r.answer == q.answer;
  r.correct_norm = choice_letter(best_norm) == q.answer;
  return r;
}

}  // namespace

ChoicePair choice_pair(const Question& q, size_t choice, ChoiceForm form) {
  if (form == ChoiceForm::kLetter)
    return {q.stem + "\n" + lettered_choices(q) + "\nAnswer:", " " + choice_letter(choice)};
  const std::string context = q.continued ? q.stem : "Question: " + q.stem + "\nAnswer:";
  return {context, " " + q.choices[choice]};
}

double choice_length(const ChoicePair& pair) {
  const std::string_view text = std::string_view(pair.continuation).substr(1);
  // A byte that begins no character goes on with the one before it.
  const auto characters = std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
  return std::max(static_cast<double>(characters), 1.0);
}

Result<int64_t> score_choices(Engine& engine, const TextModel& text, std::span<const Question> questions,
                              ChoiceForm form, ResultsFile& results, const OnEvalProgress& on_progress) {
  HB_TRY(check_results(questions, 1, results));
  int64_t tokens = 0;
  const auto total = static_cast<int64_t>(questions.size());
  while (results.results().size() < questions.size()) {
    const size_t done = results.results().size();
    if (on_progress && !on_progress(static_cast<int64_t>(done), total, tokens))
      return cancelled("the scoring was interrupted; what is done is kept");
    HB_ASSIGN(const SampleResult r, score_question(engine, text, questions[done], form, tokens));
    HB_TRY(results.append(r));
  }
  return tokens;
}

Result<LongestText> longest_choice(const TextModel& text, std::span<const Question> questions, ChoiceForm form) {
  LongestText longest;
  for (const Question& q : questions) {
    for (size_t i = 0; i < q.choices.size(); ++i) {
      const ChoicePair pair = choice_pair(q, i, form);
      HB_ASSIGN(const Prompt prompt, raw_prompt(text, pair.context + pair.continuation));
      longest.take(static_cast<int64_t>(prompt.tokens.size()), q);
    }
  }
  return longest;
}

ChoiceSummary summarise_choices(std::span<const SampleResult> results) {
  std::vector<double> right, right_norm;
  for (const SampleResult& r : results) {
    right.push_back(r.correct ? 1 : 0);
    right_norm.push_back(r.correct_norm ? 1 : 0);
  }
  return {static_cast<int64_t>(results.size()), bootstrap_mean(right), bootstrap_mean(right_norm)};
}

}  // namespace halfbyte
