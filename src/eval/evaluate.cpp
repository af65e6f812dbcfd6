#include "eval/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/quote.h"
#include "base/rng.h"
#include "decode/loop_detector.h"
#include "eval/code_grader.h"
#include "eval/grader.h"
#include "eval/grading_queue.h"
#include "text/output_text.h"

namespace halfbyte {
namespace {

// Few: a sample's code is one process at a time, beside an engine that has every core.
constexpr int kGradingThreads = 2;
// How long an idle engine waits before it asks whether to go on.
constexpr std::chrono::milliseconds kPatience(50);

class Evaluation {
 public:
  Evaluation(Engine& engine, const TextModel& text, std::span<const Question> questions, const EvalOptions& options,
             ResultsFile& results)
      : engine_(engine),
        text_(text),
        questions_(questions),
        options_(options),
        results_(results),
        stops_(stop_tokens(engine.model(), text)) {}

  Status run(const OnEvalProgress& on_progress) {
    HB_TRY(check_results(questions_, options_.samples, results_));
    next_ = results_.results().size();
    while (results_.results().size() < total()) {
      HB_TRY(submit_more());
      if (flights_.empty()) {
        grading_.wait(kPatience);
      } else {
        HB_ASSIGN(const std::vector<TokenEvent> events, engine_.step());
        for (const TokenEvent& e : events) HB_TRY(take(e));
      }
      HB_TRY(append_graded());
      if (!goes_on(on_progress))
        return {StatusCode::kCancelled, "the evaluation was interrupted; what is done is kept"};
    }
    return {};
  }

  // After an error: writes what is graded, and waits for what is being graded as long as that comes next in the file.
  void keep_graded(const OnEvalProgress& on_progress) {
    static_cast<void>(append_graded());
    while (written_.ok() && in_grading_.contains(results_.results().size()) && goes_on(on_progress)) {
      grading_.wait(kPatience);
      static_cast<void>(append_graded());
    }
  }

  // Leaves the engine with nothing to do.
  void cancel_all() {
    for (const auto& [id, flight] : flights_) engine_.cancel(id);
    while (engine_.busy()) {
      if (!engine_.step().ok()) return;
    }
  }

  int64_t tokens() const { return tokens_; }

 private:
  struct Flight {
    size_t index;  // place among all samples
    OutputText output;
    OutputDelta written;
    std::vector<int32_t> tokens;
    int64_t prompt_tokens;
  };

  size_t total() const { return questions_.size() * static_cast<size_t>(options_.samples); }
  const Question& question(size_t index) const { return questions_[index / static_cast<size_t>(options_.samples)]; }
  int64_t sample(size_t index) const { return static_cast<int64_t>(index % static_cast<size_t>(options_.samples)); }

  bool goes_on(const OnEvalProgress& on_progress) const {
    const auto done = static_cast<int64_t>(results_.results().size());
    return !on_progress || on_progress(done, static_cast<int64_t>(total()), tokens_);
  }

  Status submit_more() {
    const auto most = static_cast<size_t>(options_.concurrent);
    // Grading that does not keep up holds new samples back, so that only about twice as many are in memory.
    while (flights_.size() < most && grading_.open() < most + kGradingThreads && next_ < total()) {
      const Question& q = question(next_);
      HB_ASSIGN(const Prompt prompt, question_prompt(text_, q, options_.render));
      GenerateRequest request;
      request.prompt = prompt.tokens;
      request.max_tokens = options_.max_tokens;
      if (options_.context > 0)
        request.max_tokens =
            std::min(options_.max_tokens, options_.context - static_cast<int64_t>(prompt.tokens.size()));
      request.stop_tokens = stops_;
      request.stop_on_loop = options_.stop_on_loop;
      request.sampling = options_.sampling;
      request.step_classes = text_.step_classes;
      // By number, so that neither a limit nor a restart changes what is drawn.
      request.sampling.seed = philox_draw(options_.sampling.seed, 0, static_cast<uint64_t>(q.number), /*stream=*/1);
      request.sampling.choice = static_cast<uint32_t>(sample(next_));
      OutputTextOptions output;
      output.reasoning = reasoning_start(prompt.text);
      const auto id = engine_.submit(std::move(request));
      HB_TRY(id.status().with_context("the question " + quote(q.id)));
      flights_.emplace(
          *id, Flight{next_, OutputText(text_.tokenizer, output), {}, {}, static_cast<int64_t>(prompt.tokens.size())});
      ++next_;
    }
    return {};
  }

  Status take(const TokenEvent& e) {
    const auto at = flights_.find(e.request);
    if (at == flights_.end()) return {};
    Flight& flight = at->second;
    if (e.finish == FinishReason::kError) return internal_error("the engine gave a request up: " + e.error);
    if (e.token >= 0) {
      ++tokens_;
      flight.tokens.push_back(e.token);
      flight.output.push(e.token, flight.written);
    }
    if (e.finish == FinishReason::kNone) return {};
    flight.output.flush(flight.written);
    const auto finished = std::make_shared<const Flight>(std::move(flight));
    flights_.erase(at);
    in_grading_.insert(finished->index);
    grading_.add(finished->index, [this, finished, truncated = e.finish == FinishReason::kLength](
                                      const std::stop_token& stop) { return graded(*finished, truncated, stop); });
    return {};
  }

  // In order: a sample waits for those before it. Fails where a grading or a write failed, now or before.
  Status append_graded() {
    for (auto& [index, result] : grading_.take()) {
      in_grading_.erase(index);
      if (result.ok()) {
        finished_.emplace(index, std::move(*result));
      } else if (graded_.ok()) {
        graded_ = result.status();
      }
    }
    for (auto first = finished_.begin();
         written_.ok() && first != finished_.end() && first->first == results_.results().size();
         first = finished_.erase(first))
      written_ = results_.append(first->second);
    return written_.ok() ? graded_ : written_;
  }

  // On a thread of the queue: reads what nobody writes.
  Result<SampleResult> graded(const Flight& flight, bool truncated, const std::stop_token& stop) const {
    const Question& q = question(flight.index);
    SampleResult r;
    r.id = q.id;
    r.sample = sample(flight.index);
    r.answer = answer_of(q, flight.written.answer);
    if (q.grading == Grading::kSequence) r.score = sequence_score(q, flight.written.answer);
    if (q.grading == Grading::kCode) {
      HB_ASSIGN(r.correct, grade_code(*options_.sandbox, *q.code, r.answer, stop));
    } else {
      r.correct = grade(q, flight.written.answer);
    }
    r.prompt_tokens = flight.prompt_tokens;
    r.reasoning_tokens = flight.output.reasoning_tokens();
    r.tokens = static_cast<int64_t>(flight.tokens.size());
    r.truncated = truncated;
    r.looped = has_loop(flight.tokens);
    const auto reasoning = static_cast<size_t>(std::min(r.reasoning_tokens, r.tokens));
    r.shape = text_shape(std::span(flight.tokens).first(reasoning), *text_.step_classes);
    if (options_.keep_tokens) r.token_ids = flight.tokens;
    return r;
  }

  Engine& engine_;
  const TextModel& text_;
  std::span<const Question> questions_;
  const EvalOptions& options_;
  ResultsFile& results_;
  std::vector<int32_t> stops_;
  size_t next_ = 0;  // the next sample to submit
  std::unordered_map<uint64_t, Flight> flights_;
  std::set<size_t> in_grading_;
  std::map<size_t, SampleResult> finished_;  // graded, waiting for their turn
  Status graded_, written_;                  // the first error of each kind
  int64_t tokens_ = 0;
  GradingQueue grading_{kGradingThreads};  // last: its threads read the rest
};

// Points of the most frequent answer.
double majority_points(std::span<const SampleResult> samples) {
  std::map<std::string, int> counts;
  for (const SampleResult& r : samples) ++counts[r.answer];
  const auto better = [&](const SampleResult& a, const SampleResult& b) { return counts[a.answer] < counts[b.answer]; };
  return std::max_element(samples.begin(), samples.end(), better)->points();
}

// One a whole question.
std::vector<double> question_accuracies(std::span<const SampleResult> results, int samples) {
  const auto n = static_cast<size_t>(samples);
  std::vector<double> accuracies(results.size() / n);
  for (size_t i = 0; i < accuracies.size() * n; ++i) accuracies[i / n] += results[i].points();
  for (double& a : accuracies) a /= static_cast<double>(n);
  return accuracies;
}

}  // namespace

Result<Prompt> question_prompt(const TextModel& text, const Question& question, const ChatRenderOptions& render) {
  std::vector<ChatMessage> messages;
  for (const QuestionTurn& turn : question.before) messages.push_back({.role = turn.role, .content = turn.content});
  messages.push_back({.role = "user", .content = question.prompt});
  return chat_prompt(text, messages, render);
}

bool asks_for_code(std::span<const Question> questions) {
  return std::ranges::any_of(questions, [](const Question& q) { return q.code != nullptr; });
}

Status check_code(std::span<const Question> questions, bool sandbox) {
  const auto code = std::ranges::find_if(questions, [](const Question& q) { return q.code != nullptr; });
  if (sandbox || code == questions.end()) return {};
  return invalid_argument(
      fmt::format("the question {} is answered by code, which is graded by running it in a sandbox; allow it with "
                  "--allow-code",
                  quote(code->id)));
}

Status check_results(std::span<const Question> questions, int samples, const ResultsFile& results) {
  const auto& there = results.results();
  const auto n = static_cast<size_t>(samples);
  for (size_t i = 0; i < there.size(); ++i) {
    const std::string id = i / n < questions.size() ? questions[i / n].id : "nothing";
    const size_t sample = i / n < questions.size() ? i % n : 0;
    if (there[i].id == id && there[i].sample == static_cast<int64_t>(sample)) continue;
    return invalid_argument(fmt::format("{}: result {} is sample {} of {}, expected sample {} of {}; name another file",
                                        quote(results.path()), i, there[i].sample, quote(there[i].id), sample,
                                        quote(id)));
  }
  return {};
}

Result<int64_t> evaluate(Engine& engine, const TextModel& text, std::span<const Question> questions,
                         const EvalOptions& options, ResultsFile& results, const OnEvalProgress& on_progress) {
  if (options.samples < 1 || options.concurrent < 1 || options.max_tokens < 1) {
    return invalid_argument("an evaluation needs at least one sample, one request at once and one new token");
  }
  HB_TRY(check_code(questions, options.sandbox != nullptr));
  Evaluation evaluation(engine, text, questions, options, results);
  const Status status = evaluation.run(on_progress);
  if (!status.ok()) {
    evaluation.keep_graded(on_progress);
    evaluation.cancel_all();
    return status;
  }
  return evaluation.tokens();
}

Result<LongestText> longest_prompt(const TextModel& text, std::span<const Question> questions,
                                   const ChatRenderOptions& render) {
  LongestText longest;
  for (const Question& q : questions) {
    HB_ASSIGN(const Prompt prompt, question_prompt(text, q, render));
    longest.take(static_cast<int64_t>(prompt.tokens.size()), q);
  }
  return longest;
}

EvalSummary summarise(std::span<const SampleResult> results, int samples) {
  EvalSummary s;
  s.samples = samples;
  const auto n = static_cast<size_t>(samples);
  s.questions = static_cast<int64_t>(results.size() / n);
  if (s.questions == 0) return s;
  results = results.first(static_cast<size_t>(s.questions) * n);
  for (size_t q = 0; q < results.size(); q += n) s.majority += majority_points(results.subspan(q, n));
  for (const SampleResult& r : results) {
    s.reasoning_tokens += static_cast<double>(r.reasoning_tokens);
    s.tokens += static_cast<double>(r.tokens);
    s.truncated += r.truncated;
    s.looped += r.looped;
  }
  for (double* mean : {&s.reasoning_tokens, &s.tokens, &s.truncated, &s.looped})
    *mean /= static_cast<double>(results.size());
  s.majority /= static_cast<double>(s.questions);
  s.accuracy = bootstrap_mean(question_accuracies(results, samples));
  return s;
}

Interval accuracy_change(std::span<const SampleResult> base, std::span<const SampleResult> changed, int samples) {
  const std::vector<double> before = question_accuracies(base, samples);
  std::vector<double> change = question_accuracies(changed, samples);
  change.resize(std::min(before.size(), change.size()));
  for (size_t q = 0; q < change.size(); ++q) change[q] -= before[q];
  return bootstrap_mean(change);
}

}  // namespace halfbyte
