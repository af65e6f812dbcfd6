// The Runner of a CUDA device: cuts a plan into passes, of up to 64 decode rows or of hundreds of prompt rows. Tokens are drawn
// on the device; a request whose rules the device does not have (penalties, biases, log-probabilities; without clusters
// top-k and top-p) draws on the host from its logits. Steps whose rows are all drawn there run ahead (cuda_ahead.h).
#include "engine/cuda_runner.h"

#include <algorithm>

#include "decode/marker_penalty.h"
#include "engine/append_score.h"
#include "engine/cuda_ahead.h"
#include "engine/cuda_api.h"
#include "model/model_impl.h"

namespace halfbyte {
namespace {

bool device_draws(const Request& request) {
  const SamplingParams& p = request.ask.sampling;
  const bool truncates = p.top_k > 0 || p.top_p < 1.0f;
  return (!truncates || cuda::active_kernels().clusters) && p.logit_bias.empty() && !has_marker_penalty(p) &&
         p.logprobs < 0 && !request.history;
}

// How the row draws, and when it rests, should it run ahead. What a policy knows before the entropy is there goes with it; its
// whole state, only with rows that run ahead.
CudaPick pick_of(const Request& request, int64_t row) {
  const SamplingParams& p = request.ask.sampling;
  CudaPick pick;
  pick.row = static_cast<int32_t>(row);
  pick.rule.temperature = p.temperature;
  pick.rule.min_p = p.min_p;
  pick.rule.top_k = p.top_k;
  pick.rule.top_p = p.top_p;
  pick.rule.seed = p.seed;
  pick.rule.choice = p.choice;
  pick.rule.wants_entropy = p.entropy;
  pick.rule.limit = static_cast<int32_t>(std::min<int64_t>(request.limit, INT32_MAX));
  const std::vector<int32_t>& stops = request.ask.stop_tokens;
  if (stops.size() <= cuda::kMaxStops) {  // else the host ends the request and the row's next result is left
    pick.rule.stop_count = static_cast<int32_t>(stops.size());
    std::copy(stops.begin(), stops.end(), pick.rule.stops);
  }
  if (request.policy) {
    pick.rule.by_entropy = true;
    pick.rule.policy = request.policy->upcoming();
    pick.policy = &*request.policy;
    pick.classes = request.ask.step_classes;
  }
  return pick;
}

class CudaRunner final : public Runner {
 public:
  CudaRunner(std::shared_ptr<CudaPass> pass, const RunnerLimits& limits)
      : pass_(std::move(pass)),
        vocab_(pass_->weights().config.vocab),
        page_tokens_(limits.page_tokens),
        ahead_(*pass_, limits.page_tokens, limits.run_ahead),
        sampler_(vocab_),
        row_logits_(static_cast<size_t>(vocab_)) {}

  Result<std::span<const SampledToken>> step(const BatchPlan& plan, const LogitsTap& tap) override {
    if (!lost_.ok()) return lost_;
    const Status status = run_plan(plan, tap);
    if (status.ok()) return std::span<const SampledToken>(sampled_);
    ahead_.drop();
    // CUDA gives no way back from a fault: every call fails from then on.
    if (status.code() == StatusCode::kInternal)
      lost_ = Status(status.code(),
                     "the CUDA device failed in an earlier step, start the program again: " + status.message());
    return status;
  }

  Status score(std::span<const int32_t> tokens, int64_t position, int64_t rows, std::span<const int32_t> pages,
               const ScoreOptions& options, const ActivationTap& tap, ScoreResult& out) override {
    if (tap) return unsupported("activation taps on a CUDA device; calibrate on the CPU");
    if (!lost_.ok()) return lost_;
    ahead_.drop();  // its tokens would be written over
    const bool prompt = position < options.prompt_tokens;
    const int64_t most = prompt ? pass_->prompt_rows() : cuda::kMaxRows;
    for (int64_t first = 0; first < rows; first += most) {
      const int64_t count = std::min(most, rows - first), at = position + first;
      const auto these = tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(count));
      if (prompt) {
        const CudaSegment segment{these, at, pages};
        HB_TRY(pass_->run_prompt({&segment, 1}));
      }
      for (int64_t row = 0; row < count; row += cuda::kMaxRows)
        HB_TRY(score_rows(these, at, row, prompt ? std::span<const int32_t>() : pages, tokens, options, out));
    }
    return {};
  }

  RunnerCounts counts() const override { return {ahead_.taken(), ahead_.unused(), pass_->stream_waits()}; }

 private:
  Status run_plan(const BatchPlan& plan, const LogitsTap& tap) {
    for (const PageSave& save : plan.save) HB_TRY(save_pages(save));
    for (Request* request : plan.restore) HB_TRY(restore_pages(*request));
    tap_ = tap ? &tap : nullptr;
    sampled_.assign(static_cast<size_t>(plan.sampled), {});
    next_sample_ = 0;
    forget_rows();  // what a step that failed left
    size_t count = 0;
    while (count < plan.segments.size() && plan.segments[count].role == RowRole::kDecode) ++count;
    const auto decode = std::span(plan.segments).first(count);
    const bool alone = count == plan.segments.size() && plan.save.empty() && plan.restore.empty();
    if (tap_ == nullptr && ahead_.foresaw(decode)) {
      HB_TRY(ahead_.go_on(decode, alone));
      HB_TRY(take_rows(decode));
    } else {
      ahead_.drop();
      for (size_t first = 0; first < count; first += kMaxPassRows)
        HB_TRY(run_decode(decode.subspan(first, std::min<size_t>(kMaxPassRows, count - first)),
                          alone && count <= kMaxPassRows));
    }
    for (const BatchSegment& segment : plan.segments)
      if (segment.role == RowRole::kPrompt) HB_TRY(add_prompt_rows(segment));
    return flush_prompt();
  }

  // Decode rows that nobody foresaw, up to 64.
  Status run_decode(std::span<const BatchSegment> segments, bool alone) {
    for (const BatchSegment& segment : segments) {
      const Request& request = *segment.request;
      rows_.push_back({request.tokens[static_cast<size_t>(segment.position)], static_cast<int32_t>(segment.position),
                       request.pages});
      add_pick(segment, static_cast<int64_t>(rows_.size()) - 1);
    }
    const bool advance = ahead_.enabled() && !wants_plain() && picks_.size() == rows_.size();
    HB_ASSIGN(const int ticket,
              pass_->begin(rows_, picks_, wants_plain() ? CudaPass::Logits::kKept : CudaPass::Logits::kNone, advance));
    if (advance) {
      HB_TRY(ahead_.begun(ticket, segments, alone));
      forget_rows();
      return take_rows(segments);
    }
    cuda::Drawn drawn[kMaxPassRows];
    HB_TRY(pass_->finish(ticket, drawn));
    for (size_t i = 0; i < sampling_.size(); ++i) HB_TRY(take(i, i, drawn[i]));
    forget_rows();
    return {};
  }

  // The tokens of rows in the present pass, which may have others.
  Status take_rows(std::span<const BatchSegment> segments) {
    cuda::Drawn drawn[kMaxPassRows];
    HB_TRY(ahead_.finish(drawn));
    size_t at = 0;
    for (const BatchSegment& segment : segments) {
      at = ahead_.place_of(segment, at);
      sampling_.push_back(segment.request);
      HB_TRY(take(sampling_.size() - 1, at, drawn[at]));
      ++at;
    }
    forget_rows();
    return {};
  }

  Status save_pages(const PageSave& save) {
    const size_t bytes = pass_->page_bytes();
    save.request->saved_kv.reset(new (std::nothrow) std::byte[save.pages.size() * bytes]);
    if (save.request->saved_kv == nullptr) {
      save.request->failure = "not enough memory to set the request aside while others run; use fewer requests at once";
      return {};
    }
    std::byte* to = save.request->saved_kv.get();
    for (const int32_t page : save.pages) {
      HB_TRY(pass_->read_page(page, {to, bytes}));
      to += bytes;
    }
    return {};
  }

  Status restore_pages(Request& request) {
    const size_t bytes = pass_->page_bytes();
    const auto held = static_cast<size_t>((request.computed + page_tokens_ - 1) / page_tokens_);
    for (size_t i = 0; i < held; ++i)
      HB_TRY(pass_->write_page(request.pages[i], {request.saved_kv.get() + i * bytes, bytes}));
    request.saved_kv.reset();
    return {};
  }

  // Scores of up to 16 of the rows `these`, from `row` on, the first of which stands at `position`. pages: run them as decode
  // rows; empty: they are rows of the last prompt pass.
  Status score_rows(std::span<const int32_t> these, int64_t position, int64_t row, std::span<const int32_t> pages,
                    std::span<const int32_t> tokens, const ScoreOptions& options, ScoreResult& out) {
    const int64_t count = std::min<int64_t>(cuda::kMaxRows, static_cast<int64_t>(these.size()) - row);
    std::vector<CudaRow> rows;
    std::vector<CudaPick> picks;
    for (int64_t i = row; i < row + count; ++i) {
      rows.push_back({these[static_cast<size_t>(i)], static_cast<int32_t>(position + i), pages});
      picks.push_back({static_cast<int32_t>(pages.empty() ? i : i - row), {}, nullptr, nullptr});
    }
    cuda::Drawn drawn[cuda::kMaxRows];
    HB_TRY(pages.empty() ? pass_->draw_prompt(picks, CudaPass::Logits::kKept, drawn)
                         : pass_->run(rows, picks, CudaPass::Logits::kKept, drawn));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t at = position + row + i;
      HB_TRY(pass_->logits(static_cast<int>(i), row_logits_));
      HB_TRY(append_score(row_logits_, tokens[static_cast<size_t>(at + 1)], at, options, best_logit_fns(), out));
    }
    return {};
  }

  void add_pick(const BatchSegment& segment, int64_t row) {
    if (!segment.samples) return;
    picks_.push_back(pick_of(*segment.request, row));
    sampling_.push_back(segment.request);
  }

  Status add_prompt_rows(const BatchSegment& segment) {
    const Request& request = *segment.request;
    for (int64_t done = 0; done < segment.rows;) {
      if (prompt_rows_ == pass_->prompt_rows()) HB_TRY(flush_prompt());
      const int64_t count = std::min(segment.rows - done, pass_->prompt_rows() - prompt_rows_);
      segments_.push_back(
          {std::span(request.tokens).subspan(static_cast<size_t>(segment.position + done), static_cast<size_t>(count)),
           segment.position + done, request.pages});
      prompt_rows_ += count;
      done += count;
    }
    add_pick(segment, prompt_rows_ - 1);
    return {};
  }

  // Whether logits have to come to the host.
  bool wants_plain() const {
    return tap_ != nullptr ||
           !std::all_of(sampling_.begin(), sampling_.end(), [](const Request* r) { return device_draws(*r); });
  }

  // Runs the prompt rows that have gathered, and draws for those that end a prompt, 16 at a time.
  Status flush_prompt() {
    if (segments_.empty()) return {};
    HB_TRY(pass_->run_prompt(segments_));
    const auto logits = wants_plain() ? CudaPass::Logits::kKept : CudaPass::Logits::kNone;
    for (size_t first = 0; first < picks_.size(); first += cuda::kMaxRows) {
      const size_t count = std::min<size_t>(cuda::kMaxRows, picks_.size() - first);
      cuda::Drawn drawn[cuda::kMaxRows];
      HB_TRY(pass_->draw_prompt(std::span(picks_).subspan(first, count), logits, drawn));
      for (size_t i = 0; i < count; ++i) HB_TRY(take(first + i, i, drawn[i]));
    }
    forget_rows();
    return {};
  }

  void forget_rows() {
    rows_.clear();
    segments_.clear();
    prompt_rows_ = 0;
    picks_.clear();
    sampling_.clear();
  }

  // row: of the last draw.
  Status take(size_t pick, size_t row, const cuda::Drawn& drawn) {
    Request& request = *sampling_[pick];
    SampledToken& out = sampled_[next_sample_++];
    const SamplingParams& p = request.ask.sampling;
    if (tap_ != nullptr) {
      HB_TRY(pass_->logits(static_cast<int>(row), row_logits_));
      (*tap_)(request.id, request.length(), row_logits_);
    }
    if (device_draws(request)) {
      out.token = drawn.token;
      out.entropy = p.entropy || request.policy ? drawn.entropy : 0.0f;
      out.temperature = drawn.temperature;
      if (request.policy && drawn.token >= 0) out.choice = request.policy->next(static_cast<double>(drawn.entropy));
      if (drawn.token < 0)
        request.failure = "the model gave a logit that is NaN or infinite at position " +
                          std::to_string(request.length()) + "; its weights are broken or overflow in this plan";
      return {};
    }
    HB_TRY(pass_->logits(static_cast<int>(row), row_logits_));
    const Status status =
        sampler_.sample(row_logits_, p, request.history ? &*request.history : nullptr,
                        static_cast<uint64_t>(request.length()), out, request.policy ? &*request.policy : nullptr);
    if (!status.ok()) request.failure = status.message();
    return {};
  }

  std::shared_ptr<CudaPass> pass_;
  int64_t vocab_;
  int64_t page_tokens_;
  RunAhead ahead_;
  Status lost_;  // why the device can't be used any more
  Sampler sampler_;
  std::vector<float> row_logits_;      // [vocab]
  std::vector<SampledToken> sampled_;  // of the current step, as are:
  size_t next_sample_ = 0;
  std::vector<CudaRow> rows_;
  std::vector<CudaPick> picks_;
  std::vector<CudaSegment> segments_;
  int64_t prompt_rows_ = 0;         // of segments_
  std::vector<Request*> sampling_;  // [picks]
  const LogitsTap* tap_ = nullptr;
};

}  // namespace

std::unique_ptr<Runner> cuda_runner_of(std::shared_ptr<CudaPass> pass, const RunnerLimits& limits) {
  return std::make_unique<CudaRunner>(std::move(pass), limits);
}

Result<CudaMemory> cuda_memory() {
  HB_ASSIGN(const cuda::DeviceInfo device, cuda::usable_device(0));
  return CudaMemory{device.name, device.free_bytes, device.memory_bytes, device.multiprocessors, device.kernels.wgmma};
}

Result<std::unique_ptr<Runner>> make_cuda_runner(std::shared_ptr<const Model> model, const RunnerLimits& limits) {
  HB_ASSIGN(const cuda::DeviceInfo device, cuda::usable_device(0));
  const ModelConfig& c = model->config();
  const int64_t context = std::min(c.context, limits.pages * limits.page_tokens);
  HB_ASSIGN(CudaWeights weights, upload_weights(model->impl(), device, context));
  const CudaKvShape kv{c.layers, c.kv_heads, c.head_dim, limits.page_tokens, model->plan().kv == KvKind::kFP8};
  HB_ASSIGN(std::unique_ptr<CudaPass> pass,
            CudaPass::create(std::make_shared<const CudaWeights>(std::move(weights)), kv, cuda_pass_limits(c, limits)));
  return cuda_runner_of(std::move(pass), limits);
}

}  // namespace halfbyte
