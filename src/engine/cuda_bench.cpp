#include <algorithm>
#include <chrono>

#include "decode/reset.h"
#include "engine/cuda_devices.h"
#include "engine/cuda_runner.h"
#include "engine/cuda_supported.h"
#include "engine/scheduler.h"
#include "model/synthetic.h"

namespace halfbyte {
namespace {

constexpr int64_t kPageTokens = 32;
constexpr size_t kReadBytes = size_t{3} << 30;

// Page tables of `batch` sequences, one after the other in the cache.
std::vector<std::vector<int32_t>> tables_of(int batch, int64_t pages_each) {
  std::vector<std::vector<int32_t>> tables(static_cast<size_t>(batch));
  int32_t next = 0;
  for (std::vector<int32_t>& table : tables)
    for (int64_t i = 0; i < pages_each; ++i) table.push_back(next++);
  return tables;
}

Status check_options(const CudaDecodeOptions& o) {
  if (o.batch < 1 || o.batch > kMaxPassRows)
    return invalid_argument("a batch of " + std::to_string(o.batch) + " on a CUDA device, expected 1 to " +
                            std::to_string(kMaxPassRows));
  if (o.steps < 2 || o.warmup < 1 || o.context < 0)
    return invalid_argument("a decode loop needs at least 2 steps, 1 step of warm-up and no negative context");
  if (o.prompt < 0 || o.prompt > (1 << 20) || o.prompt_rounds < 1)
    return invalid_argument("a prompt of " + std::to_string(o.prompt) + " tokens, expected 0 to 1048576");
  if (o.prefill_chunk < 1 || o.prefill_chunk > kMostPromptRows)
    return invalid_argument("a prefill_chunk of " + std::to_string(o.prefill_chunk) +
                            " on a CUDA device, expected 1 to " + std::to_string(kMostPromptRows));
  return check_cuda_kv(o.plan.kv);
}

// Of the `steps` last stamps, and the one before them.
CudaGapReport report_of(std::span<const CudaPass::Stamp> stamps, int steps) {
  CudaGapReport out;
  for (size_t i = stamps.size() - static_cast<size_t>(steps); i < stamps.size(); ++i) {
    out.step_ms.push_back(static_cast<double>(stamps[i].end - stamps[i - 1].end) / 1e6);
    out.idle_us.push_back(static_cast<double>(stamps[i].begin - stamps[i - 1].end) / 1e3);
  }
  return out;
}

// A loop on the device alone, each row drawing as `pick` says.
Result<CudaGapReport> time_steps(CudaPass& pass, const CudaDecodeOptions& o, std::span<const CudaRow> rows,
                                 CudaPick pick, CudaPass::Stamps stamps = CudaPass::Stamps::kEnds) {
  std::vector<CudaPick> picks;
  for (size_t i = 0; i < rows.size(); ++i) {
    pick.row = static_cast<int32_t>(i);
    pick.rule.seed = i;
    picks.push_back(pick);
  }
  HB_ASSIGN(const std::vector<CudaPass::Stamp> all, pass.decode_alone(rows, picks, o.warmup + o.steps, stamps));
  return report_of(all, o.steps);
}

// Draws at temperature 1, and at ReSET's with a step of 16 tokens on average: short ones are the dearest.
Status time_policy(CudaPass& pass, const CudaDecodeOptions& o, std::span<const CudaRow> rows, int64_t vocab,
                   CudaDecodeReport& report) {
  StepClasses classes(static_cast<size_t>(vocab));
  for (size_t id = 0; id < classes.size(); id += 16) classes[id] = 2;
  const TemperatureState state(TemperaturePolicy{.rule = TemperatureRule::kReset});
  CudaPick pick;
  pick.rule.temperature = 1.0f;
  HB_ASSIGN(const CudaGapReport drawn, time_steps(pass, o, rows, pick));
  pick.rule.by_entropy = true;
  pick.policy = &state;
  pick.classes = std::make_shared<const StepClasses>(std::move(classes));
  HB_ASSIGN(const CudaGapReport by_policy, time_steps(pass, o, rows, pick));
  report.drawn_ms = drawn.step_ms;
  report.policy_ms = by_policy.step_ms;
  return {};
}

// The engine's loop (Engine::step) with the real scheduler and runner: prompts of `context` tokens, then decode steps of all.
Result<CudaGapReport> time_engine(const std::shared_ptr<CudaPass>& pass, const CudaDecodeOptions& o, int64_t pages,
                                  int64_t length, bool run_ahead) {
  RunnerLimits limits{o.batch, o.prefill_chunk, pages, kPageTokens};
  limits.run_ahead = run_ahead;
  const std::unique_ptr<Runner> runner = cuda_runner_of(pass, limits);
  BlockManager blocks(pages, kPageTokens);
  Scheduler scheduler({limits.max_batch, limits.prefill_chunk}, blocks);
  const int64_t prompt = std::max<int64_t>(1, o.context - o.warmup);
  for (int i = 0; i < o.batch; ++i) {
    auto request = std::make_unique<Request>();
    request->id = static_cast<uint64_t>(i) + 1;
    for (int64_t t = 0; t < prompt; ++t) request->tokens.push_back(static_cast<int32_t>(1 + (t + i) % 1000));
    request->prompt_tokens = prompt;
    request->limit = length;
    request->tokens.reserve(static_cast<size_t>(request->limit));
    request->ask.sampling.temperature = 0;
    scheduler.add(std::move(request));
  }
  const int64_t prompts = o.batch * (prompt / o.prefill_chunk + 2);
  HB_TRY(pass->start_stamps(static_cast<int>(prompts) + o.warmup + o.steps + 4, CudaPass::Stamps::kBoth));
  const uint64_t waits_before = pass->stream_waits();
  std::vector<TokenEvent> events;
  for (int counted = 0; counted < o.warmup + o.steps;) {
    const BatchPlan& plan = scheduler.next();
    HB_ASSIGN(const std::span<const SampledToken> tokens, runner->step(plan, {}));
    counted += plan.rows == o.batch && plan.sampled == o.batch ? 1 : 0;
    events.clear();
    scheduler.accept(plan, tokens, events);
    for (const TokenEvent& event : events)
      if (!event.error.empty()) return internal_error(event.error);
  }
  HB_ASSIGN(const std::vector<CudaPass::Stamp> all, pass->take_stamps());
  CudaGapReport out = report_of(all, o.steps);
  const RunnerCounts counts = runner->counts();
  out.ahead = counts.ahead;
  out.ahead_unused = counts.ahead_unused;
  out.waits = counts.stream_waits - waits_before;
  return out;
}

// A round that does not count, then the others: the whole prompt and the draw of its first token.
Result<std::vector<double>> time_prompts(CudaPass& pass, const CudaDecodeOptions& o, std::span<const int32_t> pages) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < o.prompt; ++i) tokens.push_back(static_cast<int32_t>(1 + i % 1000));
  std::vector<double> ms;
  for (int round = 0; round <= o.prompt_rounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    int64_t last = 0;
    for (int64_t at = 0; at < o.prompt; at += last) {
      last = std::min(pass.prompt_rows(), o.prompt - at);
      const CudaSegment segment{std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(last)), at,
                                pages};
      HB_TRY(pass.run_prompt({&segment, 1}));
    }
    CudaPick pick;
    pick.row = static_cast<int32_t>(last) - 1;
    cuda::Drawn drawn;
    HB_TRY(pass.draw_prompt({&pick, 1}, CudaPass::Logits::kNone, {&drawn, 1}));
    const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
    if (round > 0) ms.push_back(taken.count());
  }
  return ms;
}

}  // namespace

Result<CudaDecodeReport> measure_cuda_decode(const CudaDecodeOptions& o) {
  HB_TRY(check_options(o));
  HB_ASSIGN(const cuda::DeviceInfo device, cuda::usable_device(0));
  HB_ASSIGN(const ModelSource source, synthetic_source(o.shape));
  HB_ASSIGN(const ModelConfig config, make_model_config(source.config, source.generation));
  CudaDecodeReport report;
  report.place = place_of(device);
  report.driver = device.driver;
  report.runtime = device.runtime;
  HB_ASSIGN(report.read_gbps, cuda::measure_read_gbps(kReadBytes, device.multiprocessors));

  const int64_t first = std::max<int64_t>(0, o.context - o.warmup);
  // With the engine's loop the first request decodes while the prompts of the others are read.
  const int64_t ahead = o.gap ? 8 + o.batch * (o.context / o.prefill_chunk + 2) : 0;
  const int64_t length = std::max(first + o.warmup + o.steps + 1 + ahead, o.prompt + 1);
  HB_ASSIGN(CudaWeights weights, random_cuda_weights(config, o.plan, device, length));
  report.layer_bytes = weights.linear_bytes();
  report.head_bytes = weights.head.storage.view.bytes;
  const int64_t pages_each = (length + kPageTokens - 1) / kPageTokens;
  const CudaKvShape kv{config.layers, config.kv_heads, config.head_dim, kPageTokens, o.plan.kv == KvKind::kFP8};
  const int64_t pages = (pages_each + 2) * o.batch + 1;  // the scheduler keeps some free
  const int64_t prompt_rows = o.gap ? o.prefill_chunk : std::min(o.prompt, o.prefill_chunk);
  const CudaPassLimits limits{pages, prompt_rows, o.batch + 1, o.batch, pages_each};
  HB_ASSIGN(std::unique_ptr<CudaPass> made,
            CudaPass::create(std::make_shared<const CudaWeights>(std::move(weights)), kv, limits));
  const std::shared_ptr<CudaPass> pass = std::move(made);
  HB_TRY(pass->fill_cache_randomly());
  const auto tables = tables_of(o.batch, pages_each);
  std::vector<CudaRow> rows;
  for (int i = 0; i < o.batch; ++i)
    rows.push_back({i + 1, static_cast<int32_t>(first), tables[static_cast<size_t>(i)]});
  HB_ASSIGN(const CudaGapReport steps, time_steps(*pass, o, rows, {}));
  report.step_ms = steps.step_ms;
  const cuda::Clocks clocks = cuda::current_clocks(0);
  report.sm_mhz = clocks.sm_mhz;
  report.memory_mhz = clocks.memory_mhz;
  if (o.policy) HB_TRY(time_policy(*pass, o, rows, config.vocab, report));
  if (o.gap) {
    HB_ASSIGN(report.alone, time_steps(*pass, o, rows, {}, CudaPass::Stamps::kBoth));
    HB_ASSIGN(report.engine, time_engine(pass, o, pages, length, /*run_ahead=*/true));
    HB_ASSIGN(report.engine_waiting, time_engine(pass, o, pages, length, /*run_ahead=*/false));
  }
  const int64_t middle = first + o.warmup + o.steps / 2;
  report.kv_bytes = static_cast<uint64_t>(o.batch * middle * config.layers * 2 * config.kv_width() * (kv.fp8 ? 1 : 2));
  if (o.prompt > 0) {
    HB_ASSIGN(report.prompt_ms, time_prompts(*pass, o, tables[0]));
  }
  HB_ASSIGN(const double again, cuda::measure_read_gbps(kReadBytes, device.multiprocessors));
  report.read_gbps = std::max(report.read_gbps, again);
  return report;
}

}  // namespace halfbyte
