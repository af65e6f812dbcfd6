// The scheduling policy alone: no model, tokens come from nowhere.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/rng.h"

namespace halfbyte {
namespace {

std::unique_ptr<Request> make(uint64_t id, int64_t prompt, int64_t new_tokens) {
  auto request = std::make_unique<Request>();
  request->id = id;
  request->prompt_tokens = prompt;
  request->limit = prompt + new_tokens;
  request->tokens.assign(static_cast<size_t>(prompt), 1);
  return request;
}

// Drives a scheduler as a runner would, and checks every plan against what a plan may be.
class Driver {
 public:
  Driver(const SchedulerLimits& limits, int64_t pages, int64_t page_tokens)
      : limits_(limits), blocks_(pages, page_tokens), scheduler_(limits, blocks_) {}

  Scheduler& scheduler() { return scheduler_; }
  BlockManager& blocks() { return blocks_; }

  std::vector<TokenEvent> step() {
    const BatchPlan& plan = scheduler_.next();
    check(plan);
    for (const PageSave& save : plan.save) save.request->saved_kv = std::make_unique<std::byte[]>(1);
    for (Request* request : plan.restore) {
      EXPECT_NE(request->saved_kv, nullptr) << "restored without having been saved";
      request->saved_kv.reset();
    }
    std::vector<SampledToken> tokens(static_cast<size_t>(plan.sampled));
    for (SampledToken& token : tokens) token.token = 7;
    std::vector<TokenEvent> events;
    scheduler_.accept(plan, tokens, events);
    return events;
  }

 private:
  void check(const BatchPlan& plan) const {
    int64_t rows = 0, prompt_rows = 0, sampled = 0;
    bool seen_prompt = false;
    std::set<const Request*> requests;
    std::set<int32_t> pages;
    for (const BatchSegment& s : plan.segments) {
      const Request& r = *s.request;
      EXPECT_TRUE(requests.insert(&r).second) << "a request runs twice in one step";
      EXPECT_EQ(s.position, r.computed);
      EXPECT_GT(s.rows, 0);
      EXPECT_LE(s.position + s.rows, r.length());
      EXPECT_EQ(s.samples, s.position + s.rows == r.length());
      EXPECT_GE(static_cast<int64_t>(r.pages.size()) * blocks_.page_tokens(), s.position + s.rows);
      for (const int32_t page : r.pages) EXPECT_TRUE(pages.insert(page).second) << "a page belongs to two requests";
      if (s.role == RowRole::kDecode) {
        EXPECT_FALSE(seen_prompt) << "decode rows come first";
        EXPECT_EQ(s.rows, 1);
        EXPECT_GE(s.position, r.prompt_tokens);
      } else {
        seen_prompt = true;
        prompt_rows += s.rows;
        EXPECT_LE(s.position + s.rows, r.prompt_tokens);
      }
      rows += s.rows;
      sampled += s.samples ? 1 : 0;
    }
    EXPECT_EQ(plan.rows, rows);
    EXPECT_EQ(plan.sampled, sampled);
    EXPECT_LE(prompt_rows, limits_.prefill_chunk);
    EXPECT_LE(scheduler_.running(), limits_.max_batch);
  }

  SchedulerLimits limits_;
  BlockManager blocks_;
  Scheduler scheduler_;
};

TEST(Scheduler, CutsPromptsIntoChunksAndSamplesAfterTheLast) {
  Driver d({.max_batch = 4, .prefill_chunk = 10}, 100, 4);
  d.scheduler().add(make(1, 25, 2));
  EXPECT_TRUE(d.step().empty());
  EXPECT_TRUE(d.step().empty());
  auto events = d.step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].position, 25);
  EXPECT_EQ(events[0].finish, FinishReason::kNone);
  events = d.step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finish, FinishReason::kLength);
  EXPECT_EQ(d.scheduler().running(), 0);
  EXPECT_EQ(d.blocks().free_pages(), 100);
}

TEST(Scheduler, DecodesWhileAnotherPromptIsRead) {
  Driver d({.max_batch = 4, .prefill_chunk = 8}, 100, 4);
  d.scheduler().add(make(1, 8, 100));
  d.step();
  d.scheduler().add(make(2, 40, 5));
  for (int i = 0; i < 4; ++i) {
    const auto events = d.step();  // request 2 reads 8 of 40 tokens, request 1 goes on
    ASSERT_EQ(events.size(), 1u);
    EXPECT_EQ(events[0].request, 1u);
  }
  const auto events = d.step();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].request, 2u);
}

TEST(Scheduler, OneStepReadsSeveralShortPrompts) {
  Driver d({.max_batch = 3, .prefill_chunk = 32}, 100, 4);
  for (uint64_t id = 1; id <= 5; ++id) d.scheduler().add(make(id, 6, 3));
  const auto events = d.step();
  ASSERT_EQ(events.size(), 3u) << "no more than max_batch run at once";
  EXPECT_EQ(d.scheduler().waiting(), 2);
}

TEST(Scheduler, PreemptsTheYoungestAndResumesItWhereItStood) {
  // Two requests of 16 tokens in 6 pages of 4: both cannot finish together.
  Driver d({.max_batch = 2, .prefill_chunk = 16}, 6, 4);
  d.scheduler().add(make(1, 4, 12));
  d.scheduler().add(make(2, 4, 12));
  std::map<uint64_t, std::vector<int64_t>> positions;
  for (int step = 0; step < 100 && (d.scheduler().running() > 0 || d.scheduler().waiting() > 0); ++step)
    for (const TokenEvent& e : d.step()) positions[e.request].push_back(e.position);
  EXPECT_GT(d.scheduler().preemptions(), 0u);
  for (uint64_t id : {1u, 2u}) {
    ASSERT_EQ(positions[id].size(), 12u);
    for (int64_t i = 0; i < 12; ++i)
      EXPECT_EQ(positions[id][static_cast<size_t>(i)], 4 + i) << "a token twice or never";
  }
  EXPECT_EQ(d.blocks().free_pages(), 6);
}

TEST(Scheduler, StopTokensEndARequest) {
  Driver d({.max_batch = 2, .prefill_chunk = 16}, 6, 4);
  auto request = make(1, 4, 12);
  request->ask.stop_tokens = {3, 7};
  d.scheduler().add(std::move(request));
  const auto events = d.step();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finish, FinishReason::kStop);
  EXPECT_EQ(events[0].token, 7);
}

TEST(Scheduler, AFailedRequestEndsAloneAndFreesItsPages) {
  BlockManager blocks(16, 4);
  Scheduler scheduler({.max_batch = 4, .prefill_chunk = 16}, blocks);
  scheduler.add(make(1, 3, 5));
  scheduler.add(make(2, 3, 5));
  const BatchPlan& plan = scheduler.next();
  ASSERT_EQ(plan.segments.size(), 2u);
  plan.segments[0].request->failure = "broken";
  std::vector<SampledToken> tokens(2);
  tokens[1].token = 9;
  std::vector<TokenEvent> events;
  scheduler.accept(plan, tokens, events);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].finish, FinishReason::kError);
  EXPECT_EQ(events[0].error, "broken");
  EXPECT_EQ(events[0].token, -1);
  EXPECT_EQ(events[1].token, 9);
  EXPECT_EQ(scheduler.running(), 1);
  EXPECT_EQ(blocks.free_pages(), 15);
}

// A plan that could not be carried out, while it set one request aside: both end, and who waits is not touched.
TEST(Scheduler, APlanThatFailsEndsItsRequestsAndFreesTheirPages) {
  BlockManager blocks(6, 4);
  Scheduler scheduler({.max_batch = 2, .prefill_chunk = 16}, blocks);
  scheduler.add(make(1, 4, 12));
  scheduler.add(make(2, 4, 12));
  std::vector<TokenEvent> events;
  const BatchPlan* plan = &scheduler.next();
  for (int step = 0; step < 20 && plan->save.empty(); ++step) {
    std::vector<SampledToken> tokens(static_cast<size_t>(plan->sampled));
    for (SampledToken& token : tokens) token.token = 9;
    scheduler.accept(*plan, tokens, events);
    plan = &scheduler.next();
  }
  ASSERT_EQ(plan->save.size(), 1u);
  ASSERT_EQ(plan->segments.size(), 1u);
  scheduler.add(make(3, 4, 4));
  events.clear();
  scheduler.fail(*plan, internal_error("the device is gone"), events);
  ASSERT_EQ(events.size(), 2u);
  for (const TokenEvent& e : events) {
    EXPECT_NE(e.request, 3u);
    EXPECT_EQ(e.finish, FinishReason::kError);
    EXPECT_EQ(e.error, "the device is gone");
    EXPECT_EQ(e.token, -1);
  }
  EXPECT_EQ(scheduler.running(), 0);
  EXPECT_EQ(scheduler.waiting(), 1);
  EXPECT_EQ(blocks.free_pages(), 6);
}

// Random arrivals and cancellations in a cache that is far too small: nothing leaks, nothing starves, nobody is
// overtaken for ever.
TEST(Scheduler, RandomTrafficNeitherLeaksNorStarves) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    auto random = [&, i = uint64_t{0}](uint64_t below) mutable { return philox_draw(seed, 1, i++) % below; };
    const int64_t page_tokens = int64_t{1} << random(4), context = 40;
    const int64_t least = (context + page_tokens - 1) / page_tokens;
    const int64_t pages = least + static_cast<int64_t>(random(static_cast<uint64_t>(2 * least)));
    Driver d({.max_batch = 1 + static_cast<int64_t>(random(6)), .prefill_chunk = 1 + static_cast<int64_t>(random(20))},
             pages, page_tokens);
    std::map<uint64_t, int64_t> left;  // tokens that a request must still give
    uint64_t next_id = 1, oldest_last = 0;
    int idle = 0;
    for (int step = 0; step < 2000; ++step) {
      if (step < 400 && random(3) == 0) {
        const auto prompt = 1 + static_cast<int64_t>(random(30));
        const auto tokens = 1 + static_cast<int64_t>(random(static_cast<uint64_t>(context - prompt)));
        left[next_id] = tokens;
        d.scheduler().add(make(next_id++, prompt, tokens));
      }
      if (random(12) == 0 && !left.empty()) {
        auto victim = left.begin();
        std::advance(victim, static_cast<long>(random(left.size())));
        ASSERT_NE(d.scheduler().remove(victim->first), nullptr);
        left.erase(victim);
      }
      if (left.empty()) continue;
      const uint64_t oldest = left.begin()->first;
      const int64_t oldest_left = left.begin()->second;
      const auto events = d.step();
      for (const TokenEvent& e : events) {
        const auto at = left.find(e.request);
        ASSERT_NE(at, left.end()) << "an event of a request that has ended";
        if (--at->second == 0) {
          ASSERT_EQ(e.finish, FinishReason::kLength);
          left.erase(at);
        } else {
          ASSERT_EQ(e.finish, FinishReason::kNone);
        }
      }
      // The oldest request gets a token within the steps that its prompt takes.
      const bool moved = left.empty() || left.begin()->first != oldest || left.begin()->second != oldest_left;
      idle = moved || oldest != oldest_last ? 0 : idle + 1;
      oldest_last = oldest;
      ASSERT_LE(idle, 40) << "seed " << seed << ": request " << oldest << " starves";
    }
    EXPECT_TRUE(left.empty()) << "seed " << seed;
    EXPECT_EQ(d.blocks().free_pages(), pages) << "seed " << seed;
    EXPECT_EQ(d.scheduler().running() + d.scheduler().waiting(), 0);
  }
}

TEST(BlockManager, ExtendsAllOrNothing) {
  BlockManager blocks(4, 8);
  BlockTable a, b;
  EXPECT_TRUE(blocks.extend(a, 17));
  EXPECT_EQ(a.size(), 3u);
  EXPECT_TRUE(blocks.extend(a, 24));
  EXPECT_EQ(a.size(), 3u);
  EXPECT_FALSE(blocks.extend(b, 9));
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(blocks.reachable_tokens(b), 8);
  EXPECT_TRUE(blocks.extend(b, 8));
  blocks.release(a);
  EXPECT_EQ(blocks.free_pages(), 3);
}

}  // namespace
}  // namespace halfbyte
