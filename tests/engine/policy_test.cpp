// Temperature policies in the engine: each request keeps its own state, whatever runs beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "base/rng.h"
#include "halfbyte/engine.h"
#include "support/tiny_synthetic.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;
using testing::tiny_model;

constexpr uint64_t kVocab = 131;

// Every ninth token ends a step, and two newlines in a row do.
std::shared_ptr<const StepClasses> step_classes() {
  StepClasses classes(kVocab);
  for (size_t id = 0; id < classes.size(); ++id) classes[id] = id % 9 == 0 ? 2 : id % 9 == 1 ? 1 : 0;
  return std::make_shared<const StepClasses>(std::move(classes));
}

GenerateRequest request(uint64_t index) {
  GenerateRequest r;
  for (uint64_t i = 0; i < 1 + index % 7; ++i)
    r.prompt.push_back(static_cast<int32_t>(philox_draw(21, static_cast<uint32_t>(index), i) % kVocab));
  r.max_tokens = 20 + static_cast<int64_t>(index % 5);
  r.sampling.seed = index;
  r.sampling.policy.rule = static_cast<TemperatureRule>(1 + index % 5);
  r.sampling.policy.tau0 = 4.5;  // about the entropy of random weights: both temperatures are chosen
  r.sampling.policy.t_low = index % 2 == 0 ? 0.0f : 0.5f;
  r.sampling.policy.window = 1 + static_cast<int>(index % 8);
  r.sampling.policy.include_current = index % 3 == 0;
  r.step_classes = step_classes();
  return r;
}

struct Trace {
  std::vector<int32_t> tokens;
  std::vector<double> numbers;  // entropy, temperature, step mean, running mean, threshold, boundary of each token
  bool operator==(const Trace&) const = default;
};

std::vector<Trace> run(const std::vector<GenerateRequest>& requests, const EngineOptions& options,
                       uint64_t* preemptions = nullptr) {
  auto engine = Engine::create(tiny_model("qwen3", "w4a4", "ref"), options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  std::map<uint64_t, size_t> index;
  std::vector<Trace> traces(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) index[(*engine)->submit(requests[i]).value()] = i;
  while ((*engine)->busy()) {
    const auto events = (*engine)->step();
    EXPECT_TRUE(events.ok()) << events.status().message();
    for (const TokenEvent& e : *events) {
      Trace& t = traces[index.at(e.request)];
      t.tokens.push_back(e.token);
      const TemperatureChoice c = e.choice.value_or(TemperatureChoice{});
      for (const double x : {static_cast<double>(e.entropy), static_cast<double>(e.temperature), c.step_mean,
                             c.running_mean, c.threshold, static_cast<double>(c.boundary)})
        t.numbers.push_back(x);
    }
  }
  if (preemptions != nullptr) *preemptions = (*engine)->metrics().preemptions;
  return traces;
}

TEST(Policy, SixtyFourRequestsKeepTheirOwnStates) {
  std::vector<GenerateRequest> requests;
  for (uint64_t i = 0; i < 64; ++i) requests.push_back(request(i));
  EngineOptions crowded;
  crowded.max_batch = 64;
  crowded.page_tokens = 4;
  crowded.context = 64;
  crowded.kv_tokens = 64 * 12;  // too little for all of them: some are set aside and come back
  crowded.threads = 2;
  uint64_t preemptions = 0;
  const std::vector<Trace> together = run(requests, crowded, &preemptions);
  EXPECT_GT(preemptions, 0u);
  size_t boundaries = 0, low = 0, all = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    EngineOptions alone;
    alone.threads = 1;
    EXPECT_EQ(run({requests[i]}, alone)[0], together[i]) << i;
    for (size_t t = 0; t < together[i].tokens.size(); ++t, ++all) {
      low += together[i].numbers[6 * t + 1] < 1.0;
      boundaries += together[i].numbers[6 * t + 5] != 0;
    }
  }
  EXPECT_GT(boundaries, 20u);
  EXPECT_GT(low, all / 10);
  EXPECT_LT(low, all - all / 10);
}

TEST(Policy, OffIsNoPolicy) {
  GenerateRequest off = request(3);
  off.sampling.policy.rule = TemperatureRule::kFixed;
  GenerateRequest none = off;
  none.sampling.policy = {};
  none.step_classes = nullptr;
  EXPECT_EQ(run({off}, {}), run({none}, {}));
}

// Forcing the tokens that a request would have drawn changes nothing: cache, penalties and the policy's state go on; other
// tokens are taken in their place, whenever they come.
TEST(Policy, ForcedTokensGoOnWithTheSameState) {
  GenerateRequest r = request(2);
  r.max_tokens = 24;
  r.sampling.frequency_penalty = 0.5f;
  const Trace free = run({r}, {})[0];
  const auto forced_run = [&](size_t after, std::vector<int32_t> tokens) {
    auto engine = Engine::create(tiny_model("qwen3", "w4a4", "ref"), {});
    EXPECT_TRUE(engine.ok()) << engine.status().message();
    const uint64_t id = (*engine)->submit(r).value();
    std::vector<TokenEvent> all;
    const auto force = [&] { EXPECT_TRUE((*engine)->force(id, tokens).ok()); };
    if (after == 0) force();
    while ((*engine)->busy()) {
      const auto events = (*engine)->step();
      EXPECT_TRUE(events.ok()) << events.status().message();
      all.insert(all.end(), events->begin(), events->end());
      if (all.size() == after && after > 0) force();
    }
    return all;
  };
  for (const size_t after : {0, 1, 9}) {
    const auto at = free.tokens.begin() + static_cast<ptrdiff_t>(after);
    const auto all = forced_run(after, {at, at + 6});
    ASSERT_EQ(all.size(), free.tokens.size());
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(all[i].token, free.tokens[i]) << i;
      EXPECT_EQ(all[i].forced, i >= after && i < after + 6) << i;
      EXPECT_EQ(all[i].entropy, free.numbers[6 * i]) << i;
      EXPECT_EQ(all[i].choice->step_mean, free.numbers[6 * i + 2]) << i;
      EXPECT_EQ(all[i].choice->running_mean, free.numbers[6 * i + 3]) << i;
    }
  }
  // Other tokens, past the limit: the request ends where it ends.
  const auto other = forced_run(20, {5, 6, 7, 8, 9, 10});
  ASSERT_EQ(other.size(), 24u);
  EXPECT_EQ(other[20].token, 5);
  EXPECT_EQ(other[23].token, 8);
  EXPECT_EQ(other[23].finish, FinishReason::kLength);
  // A stop token among them ends it.
  r.stop_tokens = {6};
  const auto stopped = forced_run(0, {5, 6, 7});
  ASSERT_EQ(stopped.size(), 2u);
  EXPECT_EQ(stopped[1].finish, FinishReason::kStop);
}

TEST(Policy, ForcedTokensAreChecked) {
  auto engine = Engine::create(tiny_model("qwen3", "w4a4", "ref"), {});
  ASSERT_TRUE(engine.ok());
  EXPECT_THAT((*engine)->force(1, {3, 131}).message(), HasSubstr("forced tokens: token 131 at place 1"));
  EXPECT_TRUE((*engine)->force(77, {3}).ok());  // nobody's
  EXPECT_TRUE((*engine)->step()->empty());
}

TEST(Policy, NeedsStepClassesAndGoodValues) {
  auto engine = Engine::create(tiny_model("qwen3", "w4a4", "ref"), {});
  ASSERT_TRUE(engine.ok());
  GenerateRequest r = request(1);
  r.step_classes = nullptr;
  EXPECT_THAT((*engine)->submit(r).status().message(), HasSubstr("'token' needs step_classes"));
  r = request(1);
  r.sampling.policy.window = 5000;
  EXPECT_THAT((*engine)->submit(r).status().message(), HasSubstr("window is 5000, expected 1 to 4096"));
}

}  // namespace
}  // namespace halfbyte
