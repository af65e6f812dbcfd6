#include <algorithm>
#include <cstring>
#include <new>
#include <optional>

#include "base/thread_pool.h"
#include "engine/append_score.h"
#include "engine/runner.h"
#include "model/decoder.h"
#include "model/kv_cache.h"
#include "model/model_impl.h"

namespace halfbyte {
namespace {

// Rows whose logits exist at once in score(): enough to share passes over the head, few enough to stay small.
constexpr int64_t kScoreRows = 16;

DecoderLimits decoder_limits(const RunnerLimits& limits) {
  return {limits.prefill_chunk + limits.max_batch, limits.max_batch, limits.pages * limits.page_tokens};
}

int64_t logit_rows(const RunnerLimits& limits) {
  return std::max(limits.max_batch, kScoreRows);
}

class CpuRunner final : public Runner {
 public:
  CpuRunner(std::shared_ptr<const Model> model, const RunnerLimits& limits, KvCache cache)
      : model_(std::move(model)),
        vocab_(model_->config().vocab),
        logit_fns_(logit_fns(isa_name(model_->impl().isa))),
        pool_(limits.threads),
        cache_(std::move(cache)),
        decoder_(*model_, pool_, cache_, decoder_limits(limits)),
        logits_(static_cast<size_t>(logit_rows(limits) * vocab_)),
        sampled_(static_cast<size_t>(limits.max_batch)),
        clock_(limits.stage_times ? std::make_unique<StageClock>() : nullptr) {
    decoder_.measure(clock_.get());
    for (int t = 0; t < pool_.threads(); ++t) samplers_.emplace_back(vocab_, logit_fns_);
    if (pool_.threads() > 1) wide_sampler_.emplace(vocab_, logit_fns_, &pool_);
    sequences_.reserve(static_cast<size_t>(limits.max_batch));
    sampling_.reserve(static_cast<size_t>(limits.max_batch));
    logit_rows_.reserve(static_cast<size_t>(logit_rows(limits)));
  }

  Result<std::span<const SampledToken>> step(const BatchPlan& plan, const LogitsTap& tap) override {
    for (const PageSave& save : plan.save) save_pages(save);
    for (Request* request : plan.restore) restore_pages(*request);
    forward(plan);
    if (tap) show_logits(tap);
    sample();
    return std::span<const SampledToken>(sampled_.data(), sampling_.size());
  }

  Status score(std::span<const int32_t> tokens, int64_t position, int64_t rows, std::span<const int32_t> pages,
               const ScoreOptions& options, const ActivationTap& tap, ScoreResult& out) override {
    const ActivationTap* tap_or_null = tap ? &tap : nullptr;
    const SequenceRows sequence{tokens.subspan(static_cast<size_t>(position), static_cast<size_t>(rows)), position,
                                pages, position < options.prompt_tokens ? RowRole::kPrompt : RowRole::kDecode};
    decoder_.forward({&sequence, 1}, tap_or_null);
    for (int64_t first = 0; first < rows; first += kScoreRows) {
      logit_rows_.clear();
      for (int64_t r = first; r < std::min(rows, first + kScoreRows); ++r) logit_rows_.push_back(r);
      decoder_.logits(logit_rows_, logits_, tap_or_null);
      for (size_t i = 0; i < logit_rows_.size(); ++i) {
        const int64_t at = position + logit_rows_[i];
        HB_TRY(append_score({logits_.data() + static_cast<int64_t>(i) * vocab_, static_cast<size_t>(vocab_)},
                            tokens[static_cast<size_t>(at + 1)], at, options, logit_fns_, out));
      }
    }
    return {};
  }

  std::vector<StageTime> stage_times() const override {
    std::vector<StageTime> out;
    for (size_t i = 0; clock_ != nullptr && i < kStageNames.size(); ++i)
      out.push_back({kStageNames[i], clock_->seconds(i)});
    return out;
  }

 private:
  void save_pages(const PageSave& save) {
    const size_t page_bytes = cache_.shape().page_bytes();
    save.request->saved_kv.reset(new (std::nothrow) std::byte[save.pages.size() * page_bytes]);
    if (save.request->saved_kv == nullptr) {
      save.request->failure = "not enough memory to set the request aside while others run; use fewer requests at once";
      return;
    }
    std::byte* to = save.request->saved_kv.get();
    for (const int32_t page : save.pages) {
      std::memcpy(to, cache_.page(page).data(), page_bytes);
      to += page_bytes;
    }
  }

  void restore_pages(Request& request) {
    const size_t page_bytes = cache_.shape().page_bytes();
    const auto held = static_cast<size_t>((request.computed + cache_.shape().layout.page_tokens - 1) /
                                          cache_.shape().layout.page_tokens);
    for (size_t i = 0; i < held; ++i)
      std::memcpy(cache_.page(request.pages[i]).data(), request.saved_kv.get() + i * page_bytes, page_bytes);
    request.saved_kv.reset();
  }

  void forward(const BatchPlan& plan) {
    sequences_.clear();
    sampling_.clear();
    logit_rows_.clear();
    int64_t first_row = 0;
    for (const BatchSegment& segment : plan.segments) {
      const Request& request = *segment.request;
      sequences_.push_back(
          {std::span(request.tokens).subspan(static_cast<size_t>(segment.position), static_cast<size_t>(segment.rows)),
           segment.position, request.pages, segment.role});
      first_row += segment.rows;
      if (!segment.samples) continue;
      sampling_.push_back(segment.request);
      logit_rows_.push_back(first_row - 1);
    }
    decoder_.forward(sequences_);
    if (!logit_rows_.empty()) decoder_.logits(logit_rows_, logits_);
  }

  void show_logits(const LogitsTap& tap) const {
    for (size_t i = 0; i < sampling_.size(); ++i)
      tap(sampling_[i]->id, sampling_[i]->length(),
          std::span(logits_).subspan(i * static_cast<size_t>(vocab_), static_cast<size_t>(vocab_)));
  }

  // Many rows: a thread takes whole rows. Few: one row after another, each on all threads.
  void sample() {
    const StageTimer timer(clock_.get(), Stage::kSampling);
    const auto rows = static_cast<int64_t>(sampling_.size());
    if (wide_sampler_ && 2 * rows <= pool_.threads()) {
      for (int64_t i = 0; i < rows; ++i) sample_row(i, *wide_sampler_);
      return;
    }
    pool_.parallel_for(rows, 1, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t i = begin; i < end; ++i) sample_row(i, samplers_[static_cast<size_t>(thread)]);
    });
  }

  void sample_row(int64_t i, Sampler& sampler) {
    Request& request = *sampling_[static_cast<size_t>(i)];
    const std::span<float> row(logits_.data() + i * vocab_, static_cast<size_t>(vocab_));
    const Status status = sampler.sample(row, request.ask.sampling, request.history ? &*request.history : nullptr,
                                         static_cast<uint64_t>(request.length()), sampled_[static_cast<size_t>(i)],
                                         request.policy ? &*request.policy : nullptr);
    if (!status.ok()) request.failure = status.message();
  }

  std::shared_ptr<const Model> model_;
  int64_t vocab_;
  const LogitFns& logit_fns_;
  ThreadPool pool_;
  KvCache cache_;
  Decoder decoder_;
  std::vector<Sampler> samplers_;        // [threads]
  std::optional<Sampler> wide_sampler_;  // on all threads
  std::vector<float> logits_;            // [sampling rows, vocab]
  std::vector<SampledToken> sampled_;    // [sampling rows]
  std::unique_ptr<StageClock> clock_;    // or null
  std::vector<SequenceRows> sequences_;  // of the current step, as are:
  std::vector<Request*> sampling_;
  std::vector<int64_t> logit_rows_;
};

}  // namespace

Result<std::unique_ptr<Runner>> make_cpu_runner(std::shared_ptr<const Model> model, const RunnerLimits& limits) {
  HB_ASSIGN(KvCache cache,
            KvCache::create(kv_shape(model->config(), model->plan().kv, limits.page_tokens), limits.pages));
  return std::unique_ptr<Runner>(std::make_unique<CpuRunner>(std::move(model), limits, std::move(cache)));
}

RunnerFootprint cpu_runner_footprint(const ModelFacts& model, const RunnerLimits& limits) {
  RunnerFootprint out;
  out.kv = static_cast<uint64_t>(limits.pages) * kv_shape(model.config, model.plan.kv, limits.page_tokens).page_bytes();
  const auto vocab = static_cast<uint64_t>(model.config.vocab);
  const uint64_t sampler_bytes = vocab * (2 * sizeof(uint32_t) + 2 * sizeof(float));
  const int samplers = limits.threads > 1 ? limits.threads + 1 : 1;
  out.work = Decoder::work_bytes(model, decoder_limits(limits), limits.threads) +
             static_cast<uint64_t>(logit_rows(limits)) * vocab * sizeof(float) +
             static_cast<uint64_t>(samplers) * sampler_bytes;
  return out;
}

}  // namespace halfbyte
