// halfbyte trace: an answer with the numbers behind each token, as JSON lines and as a page.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/greedy.h"
#include "decode/logit_sums.h"
#include "decode/reset.h"
#include "output_target.h"
#include "run.h"
#include "text/detokenizer.h"
#include "text_input.h"
#include "trace_record.h"

namespace halfbyte::tools {
namespace {

constexpr size_t kCandidates = 5;

struct TraceOptions {
  RunOptions run;
  std::string jsonl, html, compare, reference;
};

// Collects a record a token: the tap sees the raw logits, and just after it the event says what became of them.
class Tracer {
 public:
  explicit Tracer(const Chat& chat)
      : tokenizer_(*chat.text.tokenizer),
        classes_(*chat.text.step_classes),
        text_(chat.text.tokenizer, /*skip_special=*/false),
        shadow_(shadow_policy()) {}

  void see_logits(std::span<const float> logits) { logits_.assign(logits.begin(), logits.end()); }

  void see_token(const TokenEvent& e) {
    TraceToken t;
    t.index = static_cast<int64_t>(tokens_.size());
    t.token = e.token;
    t.forced = e.forced;
    text_.push(e.token, t.text);
    t.entropy = e.entropy;
    t.temperature = e.temperature;
    const TemperatureChoice seen = e.choice ? *e.choice : shadow_.next(e.entropy);
    if (e.choice) t.threshold = seen.threshold;
    if (!e.choice) shadow_.accept(step_class(classes_, e.token));
    t.step_mean = seen.step_mean;
    t.running_mean = seen.running_mean;
    t.boundary = seen.boundary;
    t.uncertain = seen.uncertain;
    t.top = candidates(e.temperature);
    tokens_.push_back(std::move(t));
  }

  std::vector<TraceToken> finish(int64_t reasoning_tokens) {
    if (!tokens_.empty()) text_.flush(tokens_.back().text);
    for (TraceToken& t : tokens_) t.reasoning = t.index < reasoning_tokens;
    return std::move(tokens_);
  }

 private:
  // Step and running means without a policy: ReSET's, whose thresholds are not shown.
  static TemperaturePolicy shadow_policy() {
    TemperaturePolicy policy;
    policy.rule = TemperatureRule::kReset;
    return policy;
  }

  // Not the draw's integer weights over their sum: these are 0 below 2^-31 of the largest. `ids`: the likeliest first.
  std::vector<double> probabilities(const std::vector<int32_t>& ids, float temperature) {
    std::vector<double> out;
    if (temperature <= kGreedyTemperature) {
      for (const int32_t id : ids) out.push_back(id == ids.front() ? 1.0 : 0.0);
      return out;
    }
    const float max = logits_[static_cast<size_t>(ids.front())];
    scaled_.clear();
    for (const float l : logits_) scaled_.push_back((l - max) / temperature);
    const double log_z = best_logit_fns().sums(scaled_.data(), static_cast<int64_t>(scaled_.size()), 0.0f).log_z;
    for (const int32_t id : ids) out.push_back(std::exp(static_cast<double>(scaled_[static_cast<size_t>(id)]) - log_z));
    return out;
  }

  std::vector<TraceCandidate> candidates(float temperature) {
    ids_.resize(logits_.size());
    std::iota(ids_.begin(), ids_.end(), 0);
    const size_t kept = std::min(kCandidates, ids_.size());
    const auto likelier = [this](int32_t a, int32_t b) {
      const float x = logits_[static_cast<size_t>(a)], y = logits_[static_cast<size_t>(b)];
      return x != y ? x > y : a < b;
    };
    std::partial_sort(ids_.begin(), ids_.begin() + static_cast<std::ptrdiff_t>(kept), ids_.end(), likelier);
    ids_.resize(kept);
    const std::vector<double> before = probabilities(ids_, 1.0f);
    const std::vector<double> after = temperature == 1.0f ? before : probabilities(ids_, temperature);
    std::vector<TraceCandidate> out;
    for (size_t i = 0; i < ids_.size(); ++i)
      out.push_back({ids_[i], std::string(tokenizer_.token_bytes(ids_[i])), before[i], after[i]});
    return out;
  }

  const Tokenizer& tokenizer_;
  const StepClasses& classes_;
  Detokenizer text_;
  TemperatureState shadow_;
  std::vector<float> logits_, scaled_;
  std::vector<int32_t> ids_;
  std::vector<TraceToken> tokens_;
};

Status check_options(const TraceOptions& options) {
  if (options.jsonl.empty() && options.html.empty())
    return invalid_argument("nothing to write: give --jsonl FILE, --html FILE or both");
  if (!options.reference.empty() && options.compare.empty())
    return invalid_argument("--reference names the model of --compare PLAN, which is missing");
  if (options.jsonl == options.html)
    return invalid_argument("--jsonl and --html name the same file; give each one of its own");
  return check_prompt_options(options.run);
}

// The plan that the answer is compared with, and the files that are written: all opened before the work.
struct Outputs {
  std::unique_ptr<Engine> other;
  std::unique_ptr<OutputTarget> jsonl, html;
};

Result<std::unique_ptr<Engine>> open_other(const TraceOptions& options, const Chat& chat) {
  ModelOptions other = options.run.model;
  other.plan = options.compare;
  if (!options.reference.empty()) other.model = options.reference;
  HB_ASSIGN(const std::string path, model_path(other.model));
  HB_ASSIGN(std::shared_ptr<Model> model, load_model(path, other));
  if (!other.quiet)
    for (const std::string& n : model->summary().notes) note("--compare: " + n);
  const int64_t vocab = chat.model->summary().vocab;
  if (model->summary().vocab != vocab)
    return invalid_argument(fmt::format("--compare: {} has a vocabulary of {} tokens, the traced model {}", path,
                                        model->summary().vocab, vocab));
  return open_engine(path, other, model, 1);
}

Result<Outputs> open_outputs(const TraceOptions& options, const Chat& chat) {
  Outputs out;
  if (!options.jsonl.empty()) {
    HB_ASSIGN(out.jsonl, OutputTarget::open(options.jsonl, "--jsonl"));
  }
  if (!options.html.empty()) {
    HB_ASSIGN(out.html, OutputTarget::open(options.html, "--html"));
  }
  if (!options.compare.empty()) {
    HB_ASSIGN(out.other, open_other(options, chat));
  }
  return out;
}

// What the second plan makes of the same tokens, teacher-forced.
Status compare(Engine& other, const Prompt& prompt, std::vector<TraceToken>& tokens, const Chat& chat) {
  std::vector<int32_t> all = prompt.tokens;
  for (const TraceToken& t : tokens) all.push_back(t.token);
  ScoreOptions as_generated;
  as_generated.prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  HB_ASSIGN(const ScoreResult score, other.score(all, as_generated));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t at = prompt.tokens.size() - 1 + i;
    const int32_t best = score.argmax[at];
    tokens[i].other = TraceOther{best, std::string(chat.text.tokenizer->token_bytes(best)), score.entropies[at],
                                 std::exp(static_cast<double>(score.logprobs[at]))};
  }
  return {};
}

Status write_files(const Outputs& outputs, const TraceHead& head, const std::vector<TraceToken>& tokens) {
  if (outputs.jsonl) {
    std::string lines;
    for (const TraceToken& t : tokens) lines += trace_json_line(t);
    HB_TRY(outputs.jsonl->write(lines));
  }
  return outputs.html ? outputs.html->write(trace_page(head, tokens)) : Status();
}

// Generates and prints the answer (not where stdout gets the records).
Result<std::vector<TraceToken>> generate(const TraceOptions& options, Chat& chat, const Prompt& prompt) {
  Tracer tracer(chat);
  chat.completion.sampling.entropy = true;
  chat.completion.on_token = [&](const TokenEvent& e) { tracer.see_token(e); };
  chat.engine->set_logits_tap([&](uint64_t, int64_t, std::span<const float> logits) { tracer.see_logits(logits); });
  const bool print = options.jsonl != "-" && options.html != "-";
  AnswerPrinter printer(/*show_reasoning=*/true, stdout_has_color());
  hold_interrupts();
  auto completion = complete(*chat.engine, chat.text, prompt, chat.completion, [&](const OutputDelta& delta) {
    return (!print || printer.print(delta)) && !interrupted();
  });
  if (print) printer.finish();
  chat.engine->set_logits_tap(nullptr);
  if (!completion.ok()) return completion.status();
  return tracer.finish(completion->reasoning_tokens);
}

int trace(const TraceOptions& options) {
  if (const Status status = check_options(options); !status.ok()) return fail(status);
  const auto text = given_prompt(options.run);
  if (!text.ok()) return fail(text.status());
  if (!*text) return fail("trace needs a prompt: give one as an argument or pipe one in");
  auto chat = open_chat_of(options.run);
  if (!chat.ok()) return fail(chat.status());
  const UnreadStdin unread("prompt", warns_of_stdin(options.run));
  const auto prompt = make_prompt(*chat, options.run, **text);
  if (!prompt.ok()) return fail(prompt.status());
  const auto outputs = open_outputs(options, *chat);
  if (!outputs.ok()) return fail(outputs.status());
  if (!chat->policy_source.empty() && !options.run.quiet) note(sampling_line(*chat));
  auto tokens = generate(options, *chat, *prompt);
  if (!tokens.ok()) return fail(tokens.status());
  const bool cut = interrupted();  // what there is gets written
  TraceHead head{chat->model->summary().path, plan_text(chat->model->plan()), sampling_line(*chat), **text, "", {}};
  head.model = head.model.substr(head.model.find_last_of('/') + 1);
  if (!chat->policy_source.empty()) head.t_high = chat->completion.sampling.policy.t_high;
  if (!options.compare.empty() && !cut && !tokens->empty()) {
    head.other_plan = options.compare + (options.reference.empty() ? "" : " of " + options.reference);
    if (const Status status = compare(*outputs->other, *prompt, *tokens, *chat); !status.ok()) return fail(status);
  }
  if (const Status status = write_files(*outputs, head, *tokens); !status.ok()) return fail(status);
  for (const std::string& file : {options.jsonl, options.html})
    if (!file.empty() && file != "-" && !options.run.quiet)
      note(fmt::format("{} in {}", counted(tokens->size(), "token"), file));
  return cut ? end_interrupted() : kDone;
}

}  // namespace

Command add_trace(CLI::App& app) {
  auto options = std::make_shared<TraceOptions>();
  Flags flags(app);
  add_model_argument(flags, options->run.model);
  flags.words("PROMPT", options->run.prompt, "What to answer (default: stdin)");
  add_prompt_flags(flags, options->run);
  flags.option("--jsonl", options->jsonl, "Write one JSON object a token here; -: stdout");
  flags.option("--html", options->html,
               "Write a page to look at here: text coloured by entropy, steps, the curve; -: stdout");
  flags.option("--compare", options->compare, "A second plan: show where it would have chosen another token");
  flags.option("--reference", options->reference, "The model of the second plan (default: the same)");
  add_sampling_flags(flags, options->run);
  flags.flag("-q,--quiet", options->run.quiet, "No notes: what was written, how it was drawn");
  options->run.model.device = "auto";
  add_device_flag(flags, options->run.model, "Where to run: cpu, cuda, or auto: a CUDA device where one can be used");
  add_load_flags(flags, options->run.model);
  add_context_flag(flags, options->run.model);
  add_prefill_flag(flags, options->run.model);
  return [options] {
    options->run.model.quiet = options->run.quiet;
    return trace(*options);
  };
}

}  // namespace halfbyte::tools
