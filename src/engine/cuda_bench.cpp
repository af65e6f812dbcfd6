#include <algorithm>
#include <chrono>

#include "decode/reset.h"
#include "engine/cuda_api.h"
#include "engine/cuda_pass.h"
#include "model/synthetic.h"

namespace halfbyte {
namespace {

constexpr int64_t kPageTokens = 32;
constexpr int64_t kPromptRows = 2048;  // of a pass
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
  if (o.batch < 1 || o.batch > cuda::kMaxRows)
    return invalid_argument("a batch of " + std::to_string(o.batch) + " on a CUDA device, expected 1 to 16");
  if (o.steps < 2 || o.warmup < 1 || o.context < 0)
    return invalid_argument("a decode loop needs at least 2 steps, 1 step of warm-up and no negative context");
  if (o.prompt < 0 || o.prompt > (1 << 20) || o.prompt_rounds < 1)
    return invalid_argument("a prompt of " + std::to_string(o.prompt) + " tokens, expected 0 to 1048576");
  return check_cuda_kv(o.plan.kv);
}

// Milliseconds of each step that counts.
Result<std::vector<double>> time_steps(CudaPass& pass, const CudaDecodeOptions& o, std::span<const CudaRow> rows,
                                       const cuda::DrawRule& rule) {
  std::vector<uint64_t> stamps;
  HB_TRY(pass.decode_alone(rows, rule, o.warmup + o.steps, stamps));
  std::vector<double> ms;
  for (size_t i = static_cast<size_t>(o.warmup); i < stamps.size(); ++i)
    ms.push_back(static_cast<double>(stamps[i] - stamps[i - 1]) / 1e6);
  return ms;
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
    const CudaPick pick{static_cast<int32_t>(last) - 1, {}};
    cuda::Drawn drawn;
    HB_TRY(pass.draw_prompt({&pick, 1}, /*plain=*/false, {&drawn, 1}));
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
  report.device = device.name;
  report.driver = device.driver;
  report.runtime = device.runtime;
  HB_ASSIGN(report.read_gbps, cuda::measure_read_gbps(kReadBytes, device.multiprocessors));

  const int64_t first = std::max<int64_t>(0, o.context - o.warmup);
  const int64_t length = std::max(first + o.warmup + o.steps + 1, o.prompt + 1);
  HB_ASSIGN(CudaWeights weights, random_cuda_weights(config, o.plan, device, length));
  report.layer_bytes = weights.linear_bytes();
  report.head_bytes = weights.head.storage.view.bytes;
  const int64_t pages_each = (length + kPageTokens - 1) / kPageTokens;
  const CudaKvShape kv{config.layers, config.kv_heads, config.head_dim, kPageTokens, o.plan.kv == KvKind::kFP8};
  HB_ASSIGN(const std::unique_ptr<CudaPass> pass,
            CudaPass::create(std::make_shared<const CudaWeights>(std::move(weights)), kv,
                             {pages_each * o.batch, std::min(o.prompt, kPromptRows), 1}));
  HB_TRY(pass->fill_cache_randomly());
  const auto tables = tables_of(o.batch, pages_each);
  std::vector<CudaRow> rows;
  for (int i = 0; i < o.batch; ++i)
    rows.push_back({i + 1, static_cast<int32_t>(first), tables[static_cast<size_t>(i)]});
  HB_ASSIGN(report.step_ms, time_steps(*pass, o, rows, {}));
  const cuda::Clocks clocks = cuda::current_clocks(0);
  report.sm_mhz = clocks.sm_mhz;
  report.memory_mhz = clocks.memory_mhz;
  if (o.policy) {
    const TemperatureState state(TemperaturePolicy{.rule = TemperatureRule::kReset});
    cuda::DrawRule rule;
    rule.temperature = 1.0f;
    HB_ASSIGN(report.drawn_ms, time_steps(*pass, o, rows, rule));
    rule.by_entropy = true;
    rule.policy = state.upcoming();
    HB_ASSIGN(report.policy_ms, time_steps(*pass, o, rows, rule));
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
