#include "engine/scheduler.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "decode/loop_detector.h"

namespace halfbyte {
namespace {

template <class Container>
std::unique_ptr<Request> take(Container& from, uint64_t id) {
  const auto at = std::find_if(from.begin(), from.end(), [id](const auto& r) { return r->id == id; });
  if (at == from.end()) return nullptr;
  std::unique_ptr<Request> request = std::move(*at);
  from.erase(at);
  return request;
}

FinishReason finish_reason(const Request& request, int32_t token) {
  const std::vector<int32_t>& stops = request.ask.stop_tokens;
  if (std::find(stops.begin(), stops.end(), token) != stops.end()) return FinishReason::kStop;
  const auto generated = std::span(request.tokens).subspan(static_cast<size_t>(request.prompt_tokens));
  if (request.ask.stop_on_loop && ends_in_loop(generated)) return FinishReason::kLoop;
  return request.length() >= request.limit ? FinishReason::kLength : FinishReason::kNone;
}

}  // namespace

Scheduler::Scheduler(const SchedulerLimits& limits, BlockManager& blocks) : limits_(limits), blocks_(blocks) {
  running_.reserve(static_cast<size_t>(limits.max_batch));
  plan_.segments.reserve(static_cast<size_t>(limits.max_batch));
}

void Scheduler::add(std::unique_ptr<Request> request) {
  waiting_.push_back(std::move(request));
}

std::unique_ptr<Request> Scheduler::remove(uint64_t id) {
  std::unique_ptr<Request> request = take(running_, id);
  if (request == nullptr) request = take(waiting_, id);
  if (request != nullptr) blocks_.release(request->pages);
  return request;
}

void Scheduler::force(uint64_t id, std::span<const int32_t> tokens) {
  const auto add_to = [&](const std::unique_ptr<Request>& request) {
    if (request->id == id) request->forced.insert(request->forced.end(), tokens.begin(), tokens.end());
  };
  std::for_each(running_.begin(), running_.end(), add_to);
  std::for_each(waiting_.begin(), waiting_.end(), add_to);
}

const BatchPlan& Scheduler::next() {
  plan_.clear();
  plan_decode_rows();
  plan_prompt_rows();
  return plan_;
}

void Scheduler::plan_decode_rows() {
  for (size_t i = 0; i < running_.size(); ++i)
    if (!running_[i]->in_prompt() && make_room(i)) add_segment(*running_[i], RowRole::kDecode, 1);
}

void Scheduler::plan_prompt_rows() {
  int64_t budget = limits_.prefill_chunk;
  for (const auto& request : running_) {
    if (!request->in_prompt()) continue;
    const int64_t rows = add_prompt_segment(*request, budget);
    budget -= rows;
    // Out of budget or pages: a younger request must not overtake.
    if (request->computed + rows < request->prompt_tokens) return;
  }
  admit(budget);
}

void Scheduler::admit(int64_t budget) {
  if (!plan_.save.empty()) return;  // who has just been set aside is not let in again by the same step
  while (budget > 0 && !waiting_.empty() && running() < limits_.max_batch) {
    Request& request = *waiting_.front();
    // One page for each running request stays free, so that an admission does not cause a preemption at once.
    if (blocks_.free_pages() <= running()) return;
    if (request.computed > 0 && !resume(request)) return;
    running_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
    if (request.in_prompt()) {
      const int64_t rows = add_prompt_segment(request, budget);
      budget -= rows;
      if (request.computed + rows < request.prompt_tokens) return;
    } else {
      add_segment(request, RowRole::kDecode, 1);
    }
  }
}

bool Scheduler::resume(Request& request) {
  if (blocks_.pages_for(request.computed + 1) + running() > blocks_.free_pages()) return false;
  blocks_.extend(request.pages, request.computed + 1);
  plan_.restore.push_back(&request);
  return true;
}

bool Scheduler::make_room(size_t index) {
  Request& request = *running_[index];
  while (!blocks_.extend(request.pages, request.computed + 1)) {
    const bool itself = index + 1 == running_.size();
    preempt_youngest();
    if (itself) return false;
  }
  // Where pages are plenty, the next token's a step early: a runner may begin the next step before this one's tokens are here.
  if (request.computed + 2 < request.limit && blocks_.free_pages() > running())
    blocks_.extend(request.pages, request.computed + 2);
  return true;
}

void Scheduler::preempt_youngest() {
  std::unique_ptr<Request> request = std::move(running_.back());
  running_.pop_back();
  assert(!running_.empty() && "the oldest request always fits");
  plan_.save.push_back({request.get(), request->pages});
  blocks_.release(request->pages);
  waiting_.push_front(std::move(request));
  ++preemptions_;
}

int64_t Scheduler::add_prompt_segment(Request& request, int64_t budget) {
  const int64_t reach = std::min(request.prompt_tokens, blocks_.reachable_tokens(request.pages));
  const int64_t rows = std::min(budget, reach - request.computed);
  if (rows <= 0) return 0;
  blocks_.extend(request.pages, request.computed + rows);
  add_segment(request, RowRole::kPrompt, rows);
  return rows;
}

void Scheduler::add_segment(Request& request, RowRole role, int64_t rows) {
  const bool samples = request.computed + rows == request.length();
  plan_.segments.push_back({&request, role, request.computed, rows, samples});
  plan_.rows += rows;
  plan_.sampled += samples ? 1 : 0;
}

void Scheduler::take_token(Request& request, const SampledToken& drawn, TokenEvent& event) {
  event.forced = !request.forced.empty();
  event.token = drawn.token;
  if (event.forced) {
    event.token = request.forced.front();
    request.forced.pop_front();
  } else {
    event.logprob = drawn.logprob;
  }
  request.tokens.push_back(event.token);
  if (request.history) request.history->add_generated(event.token);
  if (request.policy) request.policy->accept(step_class(*request.ask.step_classes, event.token));
  event.entropy = drawn.entropy;
  event.temperature = drawn.temperature;
  event.choice = drawn.choice;
  event.top = drawn.top;
  event.finish = finish_reason(request, event.token);
}

void Scheduler::accept(const BatchPlan& plan, std::span<const SampledToken> sampled, std::vector<TokenEvent>& events) {
  events.reserve(events.size() + plan.segments.size() + plan.save.size());
  for (const PageSave& save : plan.save) {
    if (save.request->failure.empty()) continue;
    TokenEvent event;
    event.request = save.request->id;
    event.position = save.request->length();
    event.finish = FinishReason::kError;
    event.error = save.request->failure;
    events.push_back(std::move(event));
    remove(save.request->id);
  }
  size_t next_token = 0;
  for (const BatchSegment& segment : plan.segments) {
    Request& request = *segment.request;
    request.computed += segment.rows;
    if (!segment.samples && request.failure.empty()) continue;
    TokenEvent event;
    event.request = request.id;
    event.position = request.length();
    if (!request.failure.empty()) {
      event.finish = FinishReason::kError;
      event.error = request.failure;
    } else {
      take_token(request, sampled[next_token], event);
    }
    if (segment.samples) ++next_token;
    const bool finished = event.finish != FinishReason::kNone;
    events.push_back(std::move(event));
    if (finished) remove(request.id);
  }
}

void Scheduler::fail(const BatchPlan& plan, const Status& why, std::vector<TokenEvent>& events) {
  for (const PageSave& save : plan.save) save.request->failure = why.message();
  for (const BatchSegment& segment : plan.segments) segment.request->failure = why.message();
  const std::vector<SampledToken> none(static_cast<size_t>(plan.sampled));
  accept(plan, none, events);
}

}  // namespace halfbyte
