// One request from prompt to text, on a tiny model with random weights.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "chat_support.h"
#include "halfbyte/chat.h"
#include "model/config.h"
#include "support/tiny_synthetic.h"
#include "text/output_text.h"
#include "text/tokenizer.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

class CompletionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    HfConfig config = testing::tiny_config("llama");
    config.vocab_size = 300;
    LoadOptions load;
    load.plan = *parse_plan("bf16");
    load.threads = 1;
    const auto model = Model::from_source(synthetic_source(config, "llama"), load);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EngineOptions options;
    options.max_batch = 1;
    options.threads = 1;
    auto engine = Engine::create(*model, options);
    ASSERT_TRUE(engine.ok()) << engine.status().message();
    engine_ = std::move(*engine);
    text_.tokenizer = testing::byte_tokenizer();
    text_.path = "tiny";
  }

  // High temperature, so that the tokens differ.
  static CompletionOptions options(int64_t max_tokens) {
    CompletionOptions o;
    o.sampling.temperature = 5;
    o.sampling.seed = 3;
    o.max_tokens = max_tokens;
    o.split_reasoning = false;
    return o;
  }

  Completion run(const CompletionOptions& o, const OnDelta& on_delta = nullptr) {
    const Prompt prompt{{'a', 'b', 'c'}, "abc"};
    auto c = complete(*engine_, text_, prompt, o, on_delta);
    EXPECT_TRUE(c.ok()) << c.status().message();
    return c.ok() ? std::move(*c) : Completion();
  }

  std::unique_ptr<Engine> engine_;
  TextModel text_;
};

TEST_F(CompletionTest, StreamsWhatItReturns) {
  std::string streamed;
  const Completion c = run(options(40), [&](const OutputDelta& d) {
    streamed += d.answer;
    EXPECT_TRUE(d.reasoning.empty());
    return true;
  });
  EXPECT_EQ(c.prompt_tokens, 3);
  EXPECT_EQ(c.text, streamed);
  EXPECT_EQ(c.text, detokenize(*text_.tokenizer, c.token_ids, /*skip_special=*/true));
  EXPECT_EQ(c.finish, c.token_ids.size() == 40 ? FinishReason::kLength : FinishReason::kStop);
  EXPECT_TRUE(c.events.empty());
  EXPECT_GT(c.timing.prefill_s, 0);
  EXPECT_FALSE(engine_->busy());
  // The same again: same seed, same text.
  EXPECT_EQ(run(options(40)).token_ids, c.token_ids);
}

TEST_F(CompletionTest, StopsAtAStopString) {
  const Completion whole = run(options(30));
  ASSERT_GE(whole.token_ids.size(), 10u);
  // A character in the middle, as a stop string.
  CompletionOptions o = options(30);
  const size_t middle = whole.text.size() / 2;
  size_t begin = middle;
  while (begin > 0 && (static_cast<unsigned char>(whole.text[begin]) & 0xC0) == 0x80) --begin;
  size_t end = begin + 1;
  while (end < whole.text.size() && (static_cast<unsigned char>(whole.text[end]) & 0xC0) == 0x80) ++end;
  o.stops = {whole.text.substr(begin, end - begin)};
  const Completion cut = run(o);
  EXPECT_EQ(cut.finish, FinishReason::kStop);
  EXPECT_EQ(cut.text, whole.text.substr(0, whole.text.find(o.stops[0])));
  EXPECT_LT(cut.token_ids.size(), whole.token_ids.size());
  EXPECT_FALSE(engine_->busy());
}

TEST_F(CompletionTest, CanBeStoppedFromOutside) {
  int calls = 0;
  const Completion c = run(options(100), [&](const OutputDelta&) { return ++calls < 5; });
  EXPECT_EQ(c.finish, FinishReason::kCancelled);
  EXPECT_LT(c.token_ids.size(), 10u);
  EXPECT_FALSE(engine_->busy());
  // And the engine is free for the next.
  EXPECT_EQ(run(options(2)).finish, FinishReason::kLength);
}

TEST_F(CompletionTest, KeepsEventsWhenAsked) {
  CompletionOptions o = options(5);
  o.sampling.logprobs = 2;
  const Completion c = run(o);
  ASSERT_EQ(c.events.size(), c.token_ids.size());
  for (size_t i = 0; i < c.events.size(); ++i) {
    EXPECT_EQ(c.events[i].token, c.token_ids[i]);
    ASSERT_TRUE(c.events[i].logprob.has_value());
    EXPECT_EQ(c.events[i].top.size(), 2u);
  }
}

TEST_F(CompletionTest, SplitsReasoningWhereThePromptLeftIt) {
  CompletionOptions o = options(20);
  o.split_reasoning = true;
  auto c = complete(*engine_, text_, Prompt{{'a'}, "x<think>\n"}, o, nullptr);
  ASSERT_TRUE(c.ok());
  // Random text closes no tag: all of it is reasoning.
  EXPECT_TRUE(c->text.empty());
  EXPECT_FALSE(c->reasoning.empty());
  EXPECT_EQ(c->reasoning_tokens, static_cast<int64_t>(c->token_ids.size()));
}

// The model is made to close its reasoning; the whole is one stream.
TEST_F(CompletionTest, ThinkingBudgetForcesTheAnswer) {
  CompletionOptions o = options(60);
  o.split_reasoning = true;
  const Prompt inside{{'a'}, "x<think>\n"};
  const std::string forced = o.budget_text + "\n";
  for (const int64_t budget : {0, 1, 7}) {
    o.thinking_budget = budget;
    std::string reasoning, answer;
    const auto c = complete(*engine_, text_, inside, o, [&](const OutputDelta& d) {
      reasoning += d.reasoning;
      answer += d.answer;
      return true;
    });
    ASSERT_TRUE(c.ok()) << c.status().message();
    EXPECT_EQ(c->reasoning, reasoning);
    EXPECT_EQ(c->text, answer);
    EXPECT_TRUE(c->reasoning.ends_with(budget == 0 ? forced.substr(2) : forced)) << c->reasoning;
    EXPECT_FALSE(c->text.empty());
    EXPECT_EQ(c->token_ids.size(), c->finish == FinishReason::kLength ? 60u : c->token_ids.size());
    // What came before the budget's end is what comes without one.
    o.thinking_budget = -1;
    const auto free = complete(*engine_, text_, inside, o, nullptr);
    ASSERT_TRUE(free.ok());
    EXPECT_TRUE(std::equal(free->token_ids.begin(), free->token_ids.begin() + budget, c->token_ids.begin()));
    EXPECT_TRUE(free->text.empty());
  }
}

// The forced tokens are part of the one request: the prompt is read once, and every token has its event.
TEST_F(CompletionTest, ThinkingBudgetReadsNothingTwice) {
  CompletionOptions o = options(60);
  o.split_reasoning = true;
  o.sampling.logprobs = 1;
  o.thinking_budget = 4;
  const uint64_t read = engine_->metrics().prompt_tokens;
  const auto c = complete(*engine_, text_, Prompt{{'a', 'b', 'c'}, "x<think>\n"}, o, nullptr);
  ASSERT_TRUE(c.ok()) << c.status().message();
  EXPECT_EQ(engine_->metrics().prompt_tokens - read, 3u);
  const auto forced = text_.tokenizer->encode(o.budget_text + "\n</think>\n\n");
  ASSERT_EQ(c->events.size(), c->token_ids.size());
  ASSERT_GT(c->events.size(), 4 + forced->size());
  for (size_t i = 0; i < c->events.size(); ++i) {
    const TokenEvent& e = c->events[i];
    EXPECT_EQ(e.position, static_cast<int64_t>(3 + i));
    EXPECT_EQ(e.forced, i >= 4 && i < 4 + forced->size()) << i;
    EXPECT_EQ(e.logprob.has_value(), !e.forced) << i;
    EXPECT_EQ(e.top.size(), 1u);
    if (e.forced) {
      EXPECT_EQ(e.token, (*forced)[i - 4]) << i;
    }
  }
}

TEST_F(CompletionTest, ThinkingBudgetKeepsTheOtherBounds) {
  CompletionOptions o = options(12);
  o.split_reasoning = true;
  o.thinking_budget = 5;
  const Prompt inside{{'a'}, "x<think>\n"};
  // max_tokens ends inside what is forced.
  const auto cut = complete(*engine_, text_, inside, o, nullptr);
  ASSERT_TRUE(cut.ok());
  EXPECT_EQ(cut->finish, FinishReason::kLength);
  EXPECT_EQ(cut->token_ids.size(), 12u);
  EXPECT_TRUE(cut->text.empty());
  // A model that does not reason has nothing to close.
  o.thinking_budget = 0;
  const auto plain = complete(*engine_, text_, Prompt{{'a'}, "<think>\n\n</think>\n\n"}, o, nullptr);
  ASSERT_TRUE(plain.ok());
  EXPECT_TRUE(plain->reasoning.empty());
  o.split_reasoning = false;
  EXPECT_EQ(complete(*engine_, text_, inside, o, nullptr).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(CompletionTest, RefusesWhatCannotWork) {
  Prompt prompt{std::vector<int32_t>(400, 'a'), ""};
  EXPECT_THAT(complete(*engine_, text_, prompt, options(1), nullptr).status().message(), HasSubstr("400"));
  prompt.tokens = {'a'};
  CompletionOptions o = options(1);
  o.stops = {""};
  EXPECT_EQ(complete(*engine_, text_, prompt, o, nullptr).status().code(), StatusCode::kInvalidArgument);
  o = options(1);
  o.sampling.top_p = 2;
  EXPECT_EQ(complete(*engine_, text_, prompt, o, nullptr).status().code(), StatusCode::kInvalidArgument);
  prompt.tokens = {299, 300};
  EXPECT_THAT(complete(*engine_, text_, prompt, options(1), nullptr).status().message(), HasSubstr("token 300"));
}

}  // namespace
}  // namespace halfbyte
