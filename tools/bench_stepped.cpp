// The side of `halfbyte bench` that another program drives (bench/peers/compare.py): it asks for one measurement at a
// time, so that both sides run alternately on the same machine.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/clock.h"
#include "base/cpu_features.h"
#include "base/progress.h"
#include "base/quote.h"
#include "base/thread_pool.h"
#include "bench_support.h"
#include "model/config.h"
#include "model_options.h"

namespace halfbyte::tools {
namespace {

using Json = nlohmann::ordered_json;

// Sequences that decode together, from one line to the next.
class Decoding {
 public:
  // `room`: tokens that a sequence may add to its context.
  Decoding(std::unique_ptr<Engine> engine, int64_t rows, int64_t context, int64_t room)
      : engine_(std::move(engine)), rows_(rows), context_(context), room_(room) {}

  Result<std::vector<double>> steps(int64_t count) {
    if (left_ < count) HB_TRY(start());
    std::vector<double> seconds;
    for (int64_t i = 0; i < count; ++i) {
      const Stopwatch clock;
      HB_TRY(measured_step(*engine_).status());
      seconds.push_back(clock.seconds());
      if (interrupted()) return cancelled("interrupted");
    }
    left_ -= count;
    return seconds;
  }

 private:
  // Submits the sequences and runs their prompts, until a step decodes all of them.
  Status start() {
    for (const uint64_t id : ids_) engine_->cancel(id);
    while (engine_->busy()) HB_TRY(measured_step(*engine_).status());
    ids_.clear();
    for (int64_t row = 0; row < rows_; ++row) {
      GenerateRequest request;
      request.prompt = made_up_prompt(context_, engine_->model().config().vocab, row);
      request.max_tokens = room_ - 1;
      request.sampling.temperature = 0;
      HB_ASSIGN(const uint64_t id, engine_->submit(std::move(request)));
      ids_.push_back(id);
    }
    int64_t decoded = 0;
    for (left_ = room_ - 1; decoded < rows_; --left_) {
      HB_ASSIGN(const std::vector<TokenEvent> events, measured_step(*engine_));
      decoded = 0;
      for (const TokenEvent& e : events) decoded += e.token >= 0;
      if (interrupted()) return cancelled("interrupted");
    }
    return {};
  }

  std::unique_ptr<Engine> engine_;
  const int64_t rows_, context_, room_;
  std::vector<uint64_t> ids_;
  int64_t left_ = 0;  // steps that the sequences can still take
};

class Stepper {
 public:
  Stepper(std::shared_ptr<Model> model, int threads)
      : model_(std::move(model)), threads_(threads), pool_(threads), read_(pool_) {}

  Result<Json> answer(const std::string& line) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    if (what == "read") {
      read_.measure();
      return Json{{"case", "read"}, {"GBps", read_.gbps()}};
    }
    int64_t a = 0, b = 0, c = 0;
    if (what == "prompt" && words >> a && a > 0) return prompt(a);
    if (what == "decode" && words >> a >> b >> c && a > 0 && a <= 256 && b > 0 && c > 0) return decode(a, b, c);
    return invalid_argument("stdin: " + quote(line) +
                            ", expected 'prompt TOKENS', 'decode ROWS CONTEXT STEPS' or 'read'");
  }

 private:
  Result<std::unique_ptr<Engine>> engine(int64_t context, int64_t rows) const {
    EngineOptions options;
    options.threads = threads_;
    options.max_batch = static_cast<int>(rows);
    options.context = context;
    options.kv_tokens = context * rows;
    return Engine::create(model_, options);
  }

  Result<Json> prompt(int64_t tokens) {
    std::unique_ptr<Engine>& own = prompts_[tokens];
    if (!own) {
      HB_ASSIGN(own, engine(tokens + 32, 1));
    }
    GenerateRequest request;
    request.prompt = made_up_prompt(tokens, model_->config().vocab, salt_++);
    request.max_tokens = 1;
    request.sampling.temperature = 0;
    const Stopwatch clock;
    HB_TRY(own->submit(std::move(request)).status());
    while (own->busy()) HB_TRY(measured_step(*own).status());
    return Json{{"case", "prompt"}, {"tokens", tokens}, {"seconds", clock.seconds()}};
  }

  Result<Json> decode(int64_t rows, int64_t context, int64_t steps) {
    std::unique_ptr<Decoding>& own = decodings_[{rows, context}];
    if (!own) {
      const int64_t room = std::min<int64_t>(1024, model_->config().context - context);
      if (room < 2 * steps + 2)
        return invalid_argument(fmt::format("{} steps after a context of {} do not fit into the model's {} tokens",
                                            steps, context, model_->config().context));
      HB_ASSIGN(auto made, engine(context + room, rows));
      own = std::make_unique<Decoding>(std::move(made), rows, context, room);
    }
    HB_ASSIGN(const std::vector<double> seconds, own->steps(steps));
    return Json{{"case", "decode"}, {"rows", rows}, {"context", context}, {"seconds", seconds}};
  }

  std::shared_ptr<Model> model_;
  const int threads_;
  ThreadPool pool_;
  ReadSpeed read_;
  std::map<int64_t, std::unique_ptr<Engine>> prompts_;
  std::map<std::pair<int64_t, int64_t>, std::unique_ptr<Decoding>> decodings_;
  int64_t salt_ = 0;
};

bool say(const Json& line) {
  return write_out(line.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n");
}

}  // namespace

int run_stepped(const std::shared_ptr<Model>& model, int threads) {
  const ModelSummary& s = model->summary();
  Stepper stepper(model, threads);
  if (!say({{"case", "ready"},
            {"cpu", cpu_model_name()},
            {"threads", threads},
            {"plan", plan_text(model->plan())},
            {"kernels", s.kernels},
            {"weight_bytes", s.weight_bytes},
            {"decode_bytes_per_token", s.decode_bytes_per_token},
            {"kv_bytes_per_token", s.kv_bytes_per_token},
            {"load_seconds", s.load_seconds}}))
    return fail_output();
  for (std::string line; std::getline(std::cin, line);) {
    const Result<Json> answer = stepper.answer(line);
    if (!answer.ok()) return fail(answer.status());
    if (!say(*answer)) return fail_output();
  }
  return kDone;
}

}  // namespace halfbyte::tools
