// The engine end to end on tiny models: results of requests, and every way in which a request or an option can be
// wrong.
#include "halfbyte/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <thread>

#include "base/clock.h"
#include "engine/checks.h"
#include "model/model_impl.h"
#include "support/tiny_synthetic.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;
using testing::tiny_model;

std::shared_ptr<const Model> model() {
  static const std::shared_ptr<const Model> m = tiny_model("qwen3", "bf16");
  return m;
}

std::unique_ptr<Engine> make(EngineOptions options = {}) {
  if (options.threads == 0) options.threads = 2;
  auto engine = Engine::create(model(), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return std::move(*engine);
}

GenerateRequest ask(std::vector<int32_t> prompt, int64_t max_tokens) {
  GenerateRequest r;
  r.prompt = std::move(prompt);
  r.max_tokens = max_tokens;
  r.sampling.temperature = 0;
  return r;
}

std::map<uint64_t, std::vector<TokenEvent>> drain(Engine& engine) {
  std::map<uint64_t, std::vector<TokenEvent>> out;
  for (int step = 0; engine.busy(); ++step) {
    EXPECT_LT(step, 10000);
    const auto events = engine.step();
    EXPECT_TRUE(events.ok()) << events.status().message();
    if (!events.ok()) break;
    for (const TokenEvent& e : *events) out[e.request].push_back(e);
  }
  return out;
}

TEST(Engine, GeneratesUntilMaxTokens) {
  auto engine = make();
  const uint64_t id = *engine->submit(ask({5, 6, 7}, 10));
  EXPECT_TRUE(engine->busy());
  const auto events = drain(*engine)[id];
  ASSERT_EQ(events.size(), 10u);
  for (size_t i = 0; i < 10; ++i) {
    EXPECT_EQ(events[i].position, static_cast<int64_t>(3 + i));
    EXPECT_EQ(events[i].finish, i == 9 ? FinishReason::kLength : FinishReason::kNone);
    EXPECT_FALSE(events[i].logprob.has_value());
  }
  EXPECT_FALSE(engine->busy());
  const EngineMetrics m = engine->metrics();
  EXPECT_EQ(m.prompt_tokens, 3u);
  EXPECT_EQ(m.generated_tokens, 10u);
  EXPECT_EQ(m.steps, 10u);
  EXPECT_EQ(m.kv_tokens_used, 0);
  EXPECT_EQ(m.context, 256);
}

TEST(Engine, StopsAtAStopTokenAndReportsIt) {
  auto engine = make();
  const uint64_t id = *engine->submit(ask({5, 6, 7}, 8));
  const int32_t third = drain(*engine)[id][2].token;
  GenerateRequest again = ask({5, 6, 7}, 8);
  again.stop_tokens = {130, third};
  const uint64_t second = *engine->submit(again);
  const auto stopped = drain(*engine)[second];
  EXPECT_LE(stopped.size(), 3u);
  EXPECT_EQ(stopped.back().token, third);
  EXPECT_EQ(stopped.back().finish, FinishReason::kStop);
}

TEST(Engine, StopsOnALoopWhereAskedTo) {
  auto engine = make();
  for (const bool stop : {true, false}) {
    GenerateRequest request = ask(std::vector<int32_t>(60, 9), 40);  // the prompt's own repetitions do not count
    request.stop_on_loop = stop;
    const uint64_t id = *engine->submit(request);
    ASSERT_TRUE(engine->force(id, {1, 2, 3}).ok());
    ASSERT_TRUE(engine->force(id, std::vector<int32_t>(30, 9)).ok());
    const auto events = drain(*engine)[id];
    // 23 times the same token: 20 of them in a row, four times.
    ASSERT_EQ(events.size(), stop ? 3u + 23u : 40u);
    EXPECT_EQ(events.back().finish, stop ? FinishReason::kLoop : FinishReason::kLength);
    EXPECT_EQ(engine->metrics().kv_tokens_used, 0);
  }
}

TEST(Engine, WithoutMaxTokensARequestFillsTheContext) {
  auto engine = make({.context = 32});
  const uint64_t id = *engine->submit(ask({1, 2, 3, 4}, 0));
  const auto events = drain(*engine)[id];
  ASSERT_EQ(events.size(), 28u);
  EXPECT_EQ(events.back().finish, FinishReason::kLength);
}

TEST(Engine, GreedyIsTheArgmaxOfTheScore) {
  auto engine = make();
  const std::vector<int32_t> prompt{9, 8, 7, 6};
  const uint64_t id = *engine->submit(ask(prompt, 5));
  std::vector<int32_t> tokens = prompt;
  const auto events = drain(*engine)[id];
  for (const TokenEvent& e : events) tokens.push_back(e.token);
  const auto score = engine->score(tokens);
  ASSERT_TRUE(score.ok()) << score.status().message();
  for (size_t i = 3; i < tokens.size() - 1; ++i) EXPECT_EQ(score->argmax[i], tokens[i + 1]);
  EXPECT_EQ(score->entropies.size(), tokens.size() - 1);
  EXPECT_TRUE(score->logits.empty());
}

TEST(Engine, ScoredLogitsNormaliseToTheLogprobs) {
  auto engine = make();
  const std::vector<int32_t> tokens{1, 30, 120, 4, 4, 130};
  ScoreOptions options;
  options.logits = true;
  const auto score = engine->score(tokens, options);
  ASSERT_TRUE(score.ok());
  for (size_t i = 0; i < 5; ++i) {
    const float* row = score->logits.data() + i * 131;
    double sum = 0;
    for (int t = 0; t < 131; ++t) sum += std::exp(static_cast<double>(row[t]));
    EXPECT_NEAR(score->logprobs[i], row[tokens[i + 1]] - std::log(sum), 1e-5);
  }
  options.logits_from = 3;
  const auto last = engine->score(tokens, options);
  ASSERT_TRUE(last.ok());
  EXPECT_EQ(last->logprobs, score->logprobs);
  EXPECT_EQ(last->logits, std::vector<float>(score->logits.begin() + 3 * 131, score->logits.end()));
  options.logits_from = 9;
  EXPECT_TRUE(engine->score(tokens, options)->logits.empty()) << "the text ends before";
}

TEST(Engine, LogprobsAndEntropyComeWhenAsked) {
  auto engine = make();
  GenerateRequest r = ask({1, 2}, 3);
  r.sampling.logprobs = 4;
  r.sampling.entropy = true;
  const uint64_t id = *engine->submit(r);
  const auto events = drain(*engine)[id];
  ASSERT_EQ(events.size(), 3u);
  for (const TokenEvent& e : events) {
    ASSERT_TRUE(e.logprob.has_value());
    ASSERT_EQ(e.top.size(), 4u);
    EXPECT_EQ(e.top[0].token, e.token);
    EXPECT_EQ(e.top[0].logprob, e.logprob->logprob);
    EXPECT_GT(e.entropy, 0.0f);
    EXPECT_EQ(e.temperature, 0.0f);
  }
}

TEST(Engine, RefusesWhatCannotWorkAndSaysWhy) {
  auto engine = make({.context = 64});
  const auto error = [&](const GenerateRequest& r, StatusCode code) {
    const auto id = engine->submit(r);
    EXPECT_FALSE(id.ok());
    EXPECT_EQ(id.status().code(), code);
    return id.status().message();
  };
  EXPECT_THAT(error(ask({}, 5), StatusCode::kInvalidArgument), HasSubstr("prompt is empty"));
  EXPECT_THAT(error(ask({1, 131}, 5), StatusCode::kInvalidArgument),
              HasSubstr("token 131 at place 1, expected 0 to 130"));
  EXPECT_THAT(error(ask({-1}, 5), StatusCode::kInvalidArgument), HasSubstr("token -1"));
  EXPECT_THAT(error(ask({1}, -5), StatusCode::kInvalidArgument), HasSubstr("max_tokens is -5"));
  EXPECT_THAT(error(ask(std::vector<int32_t>(64, 1), 0), StatusCode::kResourceExhausted),
              HasSubstr("64 tokens, which leaves no room in the context of 64"));
  EXPECT_THAT(error(ask(std::vector<int32_t>(60, 1), 5), StatusCode::kResourceExhausted), HasSubstr("context of 64"));
  EXPECT_TRUE(engine->submit(ask(std::vector<int32_t>(60, 1), 4)).ok());
  GenerateRequest bad = ask({1}, 5);
  bad.sampling.top_p = 2;
  EXPECT_THAT(error(bad, StatusCode::kInvalidArgument), HasSubstr("top_p"));
  bad = ask({1}, 5);
  bad.stop_tokens = {999};
  EXPECT_THAT(error(bad, StatusCode::kInvalidArgument), HasSubstr("stop tokens: token 999"));
  EXPECT_THAT(engine->score(std::vector<int32_t>{1}).status().message(), HasSubstr("at least 2"));
  EXPECT_THAT(engine->score(std::vector<int32_t>{1, 400}).status().message(), HasSubstr("token 400"));
  EXPECT_THAT(engine->score(std::vector<int32_t>(65, 1)).status().message(), HasSubstr("the context is 64"));
}

TEST(Engine, RefusesOptionsThatCannotWork) {
  const auto error = [](EngineOptions options) {
    const auto engine = Engine::create(model(), options);
    EXPECT_FALSE(engine.ok());
    return engine.status().message();
  };
  EXPECT_THAT(error({.max_batch = 0}), HasSubstr("max_batch is 0"));
  EXPECT_THAT(error({.context = 257}), HasSubstr("made for 256 tokens: context is 257"));
  EXPECT_THAT(error({.context = 128, .kv_tokens = 64}),
              HasSubstr("kv_tokens is 64, expected at least the context of 128"));
  EXPECT_THAT(error({.prefill_chunk = 0}), HasSubstr("prefill_chunk"));
  EXPECT_THAT(error({.page_tokens = 24}), HasSubstr("power of two"));
  EXPECT_THAT(error({.max_waiting = 0}), HasSubstr("max_waiting"));
  EXPECT_THAT(error({.kv_tokens = int64_t{1} << 38}), HasSubstr("are available; a context of"));
}

TEST(Engine, ShortMemoryShrinksOnlyWhatNobodyAskedFor) {
  const ModelFacts& facts = model()->impl();
  const auto all = resolve_options(facts, {}, UINT64_MAX);
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(all->options.context, 256);
  EXPECT_EQ(all->footprint.kv, 256 * model()->summary().kv_bytes_per_token);
  EXPECT_GT(all->footprint.work, 0u);
  const uint64_t short_by_a_tenth = all->footprint.total() - all->footprint.kv / 10;
  EXPECT_TRUE(resolve_options(facts, {}, all->footprint.total()).ok());
  EXPECT_FALSE(resolve_options(facts, {.context = 256}, short_by_a_tenth).ok());
  const Status status = resolve_options(facts, {.context = 256}, short_by_a_tenth).status();
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(status.message(), HasSubstr("a context of 224 tokens would fit"));
  // The tiny model's whole context is the least that is of use, so here nothing is left to shrink.
  EXPECT_FALSE(resolve_options(facts, {}, short_by_a_tenth).ok());
  ModelFacts longer = facts;
  longer.config.context = 4096;
  const auto full = resolve_options(longer, {}, UINT64_MAX);
  const auto shrunk = resolve_options(longer, {}, full->footprint.work + full->footprint.kv / 2);
  ASSERT_TRUE(shrunk.ok()) << shrunk.status().message();
  EXPECT_LT(shrunk->options.context, 4096);
  EXPECT_GE(shrunk->options.context, 256);
  EXPECT_LE(shrunk->footprint.kv, full->footprint.kv / 2);
  EXPECT_THAT(resolve_options(longer, {}, 1000).status().message(), HasSubstr("are available; free memory"));
}

TEST(Engine, TheQueueIsBounded) {
  auto engine = make({.max_batch = 1, .max_waiting = 2});
  ASSERT_TRUE(engine->submit(ask({1}, 3)).ok());
  ASSERT_TRUE(engine->submit(ask({1}, 3)).ok());
  const auto third = engine->submit(ask({1}, 3));
  EXPECT_EQ(third.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(third.status().message(), HasSubstr("2 requests are waiting, at most 2 may"));
  EXPECT_EQ(engine->metrics().waiting, 2);
  ASSERT_TRUE(engine->step().ok());  // one starts
  EXPECT_EQ(engine->metrics().running, 1);
  EXPECT_TRUE(engine->submit(ask({1}, 3)).ok());
  drain(*engine);
  EXPECT_EQ(engine->metrics().waiting, 0);
}

TEST(Engine, CancellationWorksInEveryPhaseWithinOneStep) {
  const std::vector<int32_t> prompt(40, 3);
  for (const int steps_before : {0, 1, 2, 6}) {  // not taken yet; in the prompt; in the prompt; generating
    auto engine = make({.prefill_chunk = 16});
    const uint64_t id = *engine->submit(ask(prompt, 50));
    for (int i = 0; i < steps_before; ++i) ASSERT_TRUE(engine->step().ok());
    engine->cancel(id);
    const auto events = engine->step();
    ASSERT_TRUE(events.ok());
    ASSERT_EQ(events->size(), 1u);
    EXPECT_EQ((*events)[0].request, id);
    EXPECT_EQ((*events)[0].token, -1);
    EXPECT_EQ((*events)[0].finish, FinishReason::kCancelled);
    EXPECT_FALSE(engine->busy());
    EXPECT_EQ(engine->metrics().kv_tokens_used, 0);
  }
}

TEST(Engine, CancellingAWaitingOrUnknownRequestHurtsNobody) {
  auto engine = make({.max_batch = 1});
  const uint64_t first = *engine->submit(ask({1, 2}, 4));
  const uint64_t second = *engine->submit(ask({1, 2}, 4));
  ASSERT_TRUE(engine->step().ok());
  engine->cancel(second);
  engine->cancel(12345);
  const auto events = drain(*engine);
  EXPECT_EQ(events.at(second).back().finish, FinishReason::kCancelled);
  EXPECT_EQ(events.at(first).back().finish, FinishReason::kLength);
  engine->cancel(first);  // long over
  ASSERT_TRUE(engine->step().ok());
  EXPECT_FALSE(engine->busy());
}

TEST(Engine, AStepWithNothingToDoIsEmpty) {
  auto engine = make();
  const auto events = engine->step();
  ASSERT_TRUE(events.ok());
  EXPECT_TRUE(events->empty());
  EXPECT_EQ(engine->metrics().steps, 0u);
}

TEST(Engine, OtherThreadsMaySubmitCancelAndWatch) {
  auto engine = make({.max_batch = 4, .kv_tokens = 512});
  constexpr int kThreads = 3, kEach = 6;
  std::atomic<int> submitted{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kEach; ++i) {
        const auto id = engine->submit(ask({t, i, 5}, 4));
        EXPECT_TRUE(id.ok());
        if (i % 3 == 0) engine->cancel(*id);
        EXPECT_GE(engine->metrics().waiting, 0);
        ++submitted;
      }
    });
  int finished = 0;
  while (finished < kThreads * kEach) {
    const auto events = engine->step();
    ASSERT_TRUE(events.ok());
    for (const TokenEvent& e : *events) finished += e.finish != FinishReason::kNone;
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(submitted.load(), kThreads * kEach);
  EXPECT_FALSE(engine->busy());
}

TEST(Engine, TapsSeeEveryLinearsInputDuringScore) {
  auto engine = make({.prefill_chunk = 4});
  std::map<std::string, int64_t> rows;
  std::map<std::string, std::vector<float>> first;
  engine->set_tap([&](const std::string& linear, std::span<const float> x, int64_t m, int64_t k) {
    EXPECT_EQ(static_cast<int64_t>(x.size()), m * k);
    rows[linear] += m;
    first.emplace(linear, std::vector<float>(x.begin(), x.begin() + k));
  });
  ASSERT_TRUE(engine->score(std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7}).ok());
  EXPECT_EQ(rows.size(), 2u * 7 + 1);
  for (const auto& [name, count] : rows) EXPECT_EQ(count, 6) << name;
  EXPECT_EQ(first.at("layers.0.self_attn.q_proj"), first.at("layers.0.self_attn.v_proj"));
  EXPECT_EQ(first.at("layers.1.mlp.down_proj").size(), 72u);
  rows.clear();
  ASSERT_TRUE(engine->submit(ask({1, 2}, 2)).ok());
  drain(*engine);
  EXPECT_TRUE(rows.empty()) << "a tap belongs to score()";
}

TEST(Engine, LinearsOfOneInputMayRoundItEachInItsOwnWay) {
  // A tap has every input made once, in memory; without one a row is made where it is rounded, for all its linears.
  for (const char* kernels : {"ref", ""}) {
    const auto mixed = tiny_model("qwen3",
                                  "w4a16,layers.0.*.k_proj:activations=fp4,layers.*.v_proj:weights=bf16,"
                                  "layers.1.*.q_proj:activations=fp8,layers.*.up_proj:activations=fp4",
                                  kernels);
    auto engine = std::move(*Engine::create(mixed, {.prefill_chunk = 4, .threads = 2}));
    ScoreOptions options;
    options.logits = true;
    const std::vector<int32_t> tokens{1, 2, 3, 4, 5, 6, 7};
    const auto fused = engine->score(tokens, options);
    ASSERT_TRUE(fused.ok()) << fused.status().message();
    std::map<std::string, std::vector<float>> inputs;
    engine->set_tap([&](const std::string& linear, std::span<const float> x, int64_t, int64_t) {
      inputs[linear].insert(inputs[linear].end(), x.begin(), x.end());
    });
    const auto tapped = engine->score(tokens, options);
    ASSERT_TRUE(tapped.ok()) << tapped.status().message();
    EXPECT_EQ(fused->logits, tapped->logits) << kernels;
    for (const std::string layer : {"layers.0.", "layers.1."}) {
      EXPECT_EQ(inputs.at(layer + "self_attn.q_proj"), inputs.at(layer + "self_attn.k_proj"));
      EXPECT_EQ(inputs.at(layer + "self_attn.q_proj"), inputs.at(layer + "self_attn.v_proj"));
      EXPECT_EQ(inputs.at(layer + "mlp.gate_proj"), inputs.at(layer + "mlp.up_proj"));
    }
  }
}

TEST(Engine, StageTimesAddUpToTheStepsAndComeOnlyWhenAsked) {
  EXPECT_TRUE(make()->stage_times().empty());
  const auto engine = make({.stage_times = true});
  const Stopwatch watch;
  ASSERT_TRUE(engine->submit(ask({1, 2, 3}, 8)).ok());
  drain(*engine);
  const double all = watch.seconds();
  double sum = 0;
  for (const StageTime& t : engine->stage_times()) {
    EXPECT_GT(t.seconds, 0) << t.stage;
    sum += t.seconds;
  }
  EXPECT_LE(sum, all) << "no time counts twice";
}

TEST(Engine, AnOverflowingModelEndsItsRequestWithAnError) {
  // Attention scores of a BF16 model stay finite here; a final norm of 1e38 does not.
  class Overflowing final : public TensorSource {
   public:
    explicit Overflowing(std::shared_ptr<const TensorSource> inner) : inner_(std::move(inner)) {}
    std::string describe() const override { return inner_->describe(); }
    const std::string& path() const override { return inner_->path(); }
    std::span<const TensorInfo> tensors() const override { return inner_->tensors(); }
    const TensorInfo* find(std::string_view name) const override { return inner_->find(name); }
    Result<std::span<const std::byte>> bytes(const TensorInfo& t) const override { return inner_->bytes(t); }
    std::shared_ptr<const void> owner(const TensorInfo& t) const override { return inner_->owner(t); }
    Status read_rows(const TensorInfo& t, int64_t first, int64_t rows, std::span<float> out) const override {
      if (t.name == "model.norm.weight") {
        std::fill(out.begin(), out.end(), 3e38f);
        return {};
      }
      return inner_->read_rows(t, first, rows, out);
    }
    std::string label(const TensorInfo& t) const override { return inner_->label(t); }

   private:
    std::shared_ptr<const TensorSource> inner_;
  };
  ModelSource source = synthetic_source(testing::tiny_config("llama"), "llama");
  source.tensors = std::make_shared<Overflowing>(source.tensors);
  LoadOptions options;
  options.plan = *plan_preset("bf16");
  options.threads = 1;
  const auto broken = Model::from_source(source, options);
  ASSERT_TRUE(broken.ok()) << broken.status().message();
  EngineOptions engine_options;
  engine_options.threads = 1;
  auto engine = Engine::create(*broken, engine_options);
  ASSERT_TRUE(engine.ok());
  const uint64_t id = *(*engine)->submit(ask({1, 2, 3}, 4));
  const auto events = drain(**engine)[id];
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finish, FinishReason::kError);
  EXPECT_THAT(events[0].error, HasSubstr("NaN or infinite at position 3"));
  EXPECT_EQ((*engine)->metrics().kv_tokens_used, 0);
  EXPECT_EQ((*engine)->score(std::vector<int32_t>{1, 2, 3}).status().code(), StatusCode::kInvalidData);
}

TEST(Engine, FinishReasonsHaveNames) {
  EXPECT_STREQ(finish_reason_name(FinishReason::kStop), "stop");
  EXPECT_STREQ(finish_reason_name(FinishReason::kLength), "length");
  EXPECT_STREQ(finish_reason_name(FinishReason::kLoop), "loop");
  EXPECT_STREQ(finish_reason_name(FinishReason::kCancelled), "cancelled");
  EXPECT_STREQ(finish_reason_name(FinishReason::kError), "error");
}

}  // namespace
}  // namespace halfbyte
