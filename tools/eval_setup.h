// What `halfbyte eval` and its commands share: their flags, and a model with the questions that it is asked.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/progress.h"
#include "eval/choice_scores.h"
#include "eval/evaluate.h"
#include "length_options.h"
#include "model_options.h"
#include "policy_options.h"
#include "question_options.h"

namespace halfbyte::tools {

// Of an answer where nothing else is said; less where the context leaves less.
inline constexpr int64_t kEvalTokens = 1024;

// How answers are drawn: nothing that is only scored reads any of it.
struct DrawingFlags {
  PolicyOptions policy;
  LengthOptions length;
  std::string prompt_suffix, system, max_tokens;
  int samples = 1, concurrent = 16;
  uint64_t seed = 0;
  std::optional<double> temperature, top_p, min_p;
  std::optional<int> top_k;
  std::optional<bool> think;  // --think, --no-think; else what the template does if nothing is said
  bool keep_tokens = false;
};

struct EvalFlags : DrawingFlags {
  ModelOptions model;
  QuestionOptions questions;
  std::string out;
  std::string text, window = "2K";   // of a perplexity
  std::string choices = "generate";  // how multiple choice is answered: generate, text or letter
  bool allow_code = false, weak_sandbox = false;
  std::string python = "python3", code_memory = "1G";
  double code_seconds = 10;
  bool json = false, quiet = false;
  bool only_scores() const { return choices != "generate"; }
};

// Everything that a run needs once its flags are read.
struct EvalSetup {
  std::string questions_path, task;
  Place place;  // where the model runs
  std::vector<Question> questions;
  TextModel text;
  std::shared_ptr<Model> model;
  std::unique_ptr<Engine> engine;
  std::shared_ptr<const Sandbox> sandbox;  // only where a question is answered by code
  EvalOptions options;
  std::string policy_source;       // where the policy's numbers come from
  std::optional<ChoiceForm> form;  // choices are scored, and nothing is generated
};

void add_split_flag(Flags& flags, EvalFlags& options);
// What DrawingFlags holds, less --keep-tokens.
void add_drawing_flags(Flags& flags, DrawingFlags& options);
// --quiet, model and machine.
void add_machine_flags(Flags& flags, EvalFlags& options);
// --choices is one of its three words.
Result<std::optional<ChoiceForm>> parse_choices(const std::string& text);
// --allow-code and what goes with it.
void add_code_flags(Flags& flags, EvalFlags& options);
// Refuses what goes with --allow-code where that is missing.
Status refuse_unused_code_flags(const CLI::App& app, const EvalFlags& options);
// Where a question is answered by code: `open`, or a sandbox that was tried out, or the reason why there is none. Null where
// no question is.
using SharedSandbox = std::shared_ptr<const Sandbox>;
Result<SharedSandbox> code_sandbox(const EvalFlags& flags, std::span<const Question> questions, SharedSandbox open);
// `sandbox`: one that is open already, or null.
Result<EvalSetup> prepare_eval(const EvalFlags& flags, SharedSandbox sandbox = nullptr);
// JSON; "null" for a fixed temperature.
std::string policy_json(const TemperaturePolicy& policy);
// All that the results depend on, in one line.
std::string settings_json(const EvalFlags& flags, const EvalSetup& setup);

// Steps the bar, which must outlive it, for each answer; stops when interrupted.
OnEvalProgress answer_progress(ProgressBar& bar);

struct EvalRun {
  std::unique_ptr<ResultsFile> results;
  double tokens_per_s = 0;  // of this run; 0: nothing was left to do
};
// Answers what the results file (flags.out; in memory without one) lacks, with a bar called `label`. Interrupts are held.
Result<EvalRun> run_eval(const EvalFlags& flags, EvalSetup& setup, const std::string& label);

}  // namespace halfbyte::tools
