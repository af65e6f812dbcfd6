#include "base/clock.h"
#include "base/result.h"
#include "halfbyte/chat.h"
#include "model/config.h"
#include "text/output_text.h"
#include "text/tokenizer.h"

namespace halfbyte {
namespace {

// What is put behind the reasoning's end where it is forced, as templates write it.
constexpr std::string_view kCloseReasoning = "\n</think>\n\n";

class Run {
 public:
  Run(Engine& engine, const TextModel& model, const CompletionOptions& options, const OutputTextOptions& output,
      const OnDelta& on_delta, Completion& out)
      : engine_(engine),
        model_(model),
        options_(options),
        on_delta_(on_delta),
        out_(out),
        text_(model.tokenizer, output),
        keep_events_(options.sampling.logprobs >= 0 || options.sampling.entropy ||
                     options.sampling.policy.rule != TemperatureRule::kFixed) {}

  Status all(const std::vector<int32_t>& prompt) {
    GenerateRequest request;
    request.prompt = prompt;
    request.max_tokens = options_.max_tokens;
    request.stop_tokens = stop_tokens(engine_.model(), model_);
    request.stop_on_loop = options_.stop_on_loop;
    request.sampling = options_.sampling;
    request.step_classes = model_.step_classes;
    HB_ASSIGN(id_, engine_.submit(std::move(request)));
    if (budget_spent()) HB_TRY(close_reasoning());
    while (engine_.busy()) {
      HB_ASSIGN(const std::vector<TokenEvent> events, engine_.step());
      for (const TokenEvent& e : events)
        if (e.request == id_) HB_TRY(take(e));
      // Also before the first token: a long prompt can be interrupted.
      if (events.empty() && !ended_) ask({});
      if (stopped_) engine_.cancel(id_);
    }
    measure();
    OutputDelta rest;
    text_.flush(rest);
    append(rest);
    out_.reasoning_tokens = text_.reasoning_tokens();
    return {};
  }

 private:
  Status take(const TokenEvent& e) {
    if (e.finish == FinishReason::kError) return internal_error("the engine gave the request up: " + e.error);
    if (!stopped_ && e.token >= 0) {
      last_ = clock_.seconds();
      if (out_.token_ids.empty()) first_ = last_;
      if (keep_events_) out_.events.push_back(e);
      if (options_.on_token) options_.on_token(e);
      push(e.token);
      if (!stopped_ && budget_spent()) HB_TRY(close_reasoning());
    }
    if (e.finish != FinishReason::kNone) {
      ended_ = true;
      if (out_.finish == FinishReason::kNone) out_.finish = e.finish;
    }
    return {};
  }

  void push(int32_t token) {
    out_.token_ids.push_back(token);
    OutputDelta delta;
    const bool found_stop = text_.push(token, delta);
    append(delta);
    if (!found_stop || out_.finish != FinishReason::kNone) return;
    out_.finish = FinishReason::kStop;
    out_.at_stop_text = true;
    stopped_ = true;
  }

  bool budget_spent() const {
    return options_.thinking_budget >= 0 && !closed_ && text_.in_reasoning() &&
           text_.reasoning_tokens() >= options_.thinking_budget;
  }

  // The next tokens are the end of the reasoning.
  Status close_reasoning() {
    closed_ = true;
    HB_ASSIGN(std::vector<int32_t> end, model_.tokenizer->encode(options_.budget_text + std::string(kCloseReasoning)));
    return engine_.force(id_, std::move(end));
  }

  void append(const OutputDelta& delta) {
    out_.reasoning += delta.reasoning;
    out_.text += delta.answer;
    ask(delta);
  }

  void ask(const OutputDelta& delta) {
    if (!on_delta_ || on_delta_(delta) || ended_ || out_.finish != FinishReason::kNone) return;
    stopped_ = true;
    out_.finish = FinishReason::kCancelled;
  }

  void measure() {
    const auto tokens = static_cast<double>(out_.token_ids.size());
    CompletionTiming& t = out_.timing;
    t.prefill_s = first_;
    t.decode_s = last_ - first_;
    if (first_ > 0) t.prefill_tokens_per_s = static_cast<double>(out_.prompt_tokens) / first_;
    if (t.decode_s > 0) t.decode_tokens_per_s = (tokens - 1) / t.decode_s;
  }

  Engine& engine_;
  const TextModel& model_;
  const CompletionOptions& options_;
  const OnDelta& on_delta_;
  Completion& out_;
  OutputText text_;
  bool keep_events_;
  uint64_t id_ = 0;  // of the engine's request
  const Stopwatch clock_;
  double first_ = 0, last_ = 0;  // seconds to the first and to the last token
  bool stopped_ = false;         // we want no more of this request
  bool ended_ = false;           // the engine has said so
  bool closed_ = false;          // the reasoning's end has been forced
};

}  // namespace

std::vector<int32_t> stop_tokens(const Model& model, const TextModel& text) {
  std::vector<int32_t> tokens = model.config().stop_tokens;
  // A tokenizer may know more tokens than the model can say.
  if (const auto eos = text.tokenizer->eos(); eos && *eos < model.summary().vocab) tokens.push_back(*eos);
  return tokens;
}

Result<Completion> complete(Engine& engine, const TextModel& text, const Prompt& prompt,
                            const CompletionOptions& options, const OnDelta& on_delta) {
  OutputTextOptions output;
  HB_ASSIGN(output.stops, StopSet::create(options.stops));
  output.reasoning = options.split_reasoning ? std::optional(reasoning_start(prompt.text)) : std::nullopt;
  if (options.thinking_budget >= 0 && !options.split_reasoning)
    return invalid_argument("a thinking budget needs reasoning to be told apart, expected split_reasoning");

  Completion out;
  out.prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  HB_TRY(Run(engine, text, options, output, on_delta, out).all(prompt.tokens));
  return out;
}

}  // namespace halfbyte
