#include "base/clock.h"
#include "base/result.h"
#include "halfbyte/chat.h"
#include "model/config.h"
#include "text/output_text.h"

namespace halfbyte {
namespace {

class Run {
 public:
  Run(Engine& engine, Completion& out, OutputText& text, const CompletionOptions& options, const OnDelta& on_delta)
      : engine_(engine), out_(out), text_(text), options_(options), on_delta_(on_delta) {
    const SamplingParams& p = options.sampling;
    keep_events_ = p.logprobs >= 0 || p.entropy || p.policy.rule != TemperatureRule::kFixed;
  }

  Status to_end(uint64_t request) {
    const Stopwatch clock;
    double first = 0, last = 0;
    while (engine_.busy()) {
      HB_ASSIGN(const std::vector<TokenEvent> events, engine_.step());
      for (const TokenEvent& e : events) {
        if (e.request != request) continue;
        if (e.token >= 0) {
          last = clock.seconds();
          if (out_.token_ids.empty()) first = last;
        }
        HB_TRY(take(e));
      }
      // Also before the first token: a long prompt can be interrupted.
      if (events.empty() && !ended_) ask({});
      if (stopped_) engine_.cancel(request);
    }
    measure(first, last);
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
      out_.token_ids.push_back(e.token);
      if (keep_events_) out_.events.push_back(e);
      if (options_.on_token) options_.on_token(e);
      OutputDelta delta;
      const bool found_stop = text_.push(e.token, delta);
      append(delta);
      if (found_stop && out_.finish == FinishReason::kNone) {
        out_.finish = FinishReason::kStop;
        stopped_ = true;
      }
    }
    if (e.finish != FinishReason::kNone) {
      ended_ = true;
      if (out_.finish == FinishReason::kNone) out_.finish = e.finish;
    }
    return {};
  }

  void append(const OutputDelta& delta) {
    out_.reasoning += delta.reasoning;
    out_.text += delta.answer;
    ask(delta);
  }

  void ask(const OutputDelta& delta) {
    if (!on_delta_ || on_delta_(delta) || stopped_ || ended_) return;
    stopped_ = true;
    out_.finish = FinishReason::kCancelled;
  }

  void measure(double first, double last) {
    const auto tokens = static_cast<double>(out_.token_ids.size());
    CompletionTiming& t = out_.timing;
    t.prefill_s = first;
    t.decode_s = last - first;
    if (first > 0) t.prefill_tokens_per_s = static_cast<double>(out_.prompt_tokens) / first;
    if (t.decode_s > 0) t.decode_tokens_per_s = (tokens - 1) / t.decode_s;
  }

  Engine& engine_;
  Completion& out_;
  OutputText& text_;
  const CompletionOptions& options_;
  const OnDelta& on_delta_;
  bool keep_events_;
  bool stopped_ = false;  // we want no more
  bool ended_ = false;    // the engine has said so
};

}  // namespace

std::vector<int32_t> stop_tokens(const Model& model, const TextModel& text) {
  std::vector<int32_t> tokens = model.config().stop_tokens;
  if (const auto eos = text.tokenizer->eos()) tokens.push_back(*eos);
  return tokens;
}

Result<Completion> complete(Engine& engine, const TextModel& text, const Prompt& prompt,
                            const CompletionOptions& options, const OnDelta& on_delta) {
  OutputTextOptions output;
  HB_ASSIGN(output.stops, StopSet::create(options.stops));
  output.reasoning = options.split_reasoning ? std::optional(reasoning_start(prompt.text)) : std::nullopt;
  OutputText stream(text.tokenizer, output);

  GenerateRequest request;
  request.prompt = prompt.tokens;
  request.max_tokens = options.max_tokens;
  request.stop_tokens = stop_tokens(engine.model(), text);
  request.sampling = options.sampling;
  request.step_classes = text.step_classes;

  Completion out;
  out.prompt_tokens = static_cast<int64_t>(prompt.tokens.size());
  HB_ASSIGN(const uint64_t id, engine.submit(std::move(request)));
  HB_TRY(Run(engine, out, stream, options, on_delta).to_end(id));
  return out;
}

}  // namespace halfbyte
