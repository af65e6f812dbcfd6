#include <algorithm>

#include "engine/cuda_api.h"
#include "engine/cuda_pass.h"
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
  if (o.batch < 1 || o.batch > cuda::kMaxRows)
    return invalid_argument("a batch of " + std::to_string(o.batch) + " on a CUDA device, expected 1 to 16");
  if (o.steps < 2 || o.warmup < 1 || o.context < 0)
    return invalid_argument("a decode loop needs at least 2 steps, 1 step of warm-up and no negative context");
  if (o.plan.kv != KvKind::kBF16)
    return unsupported(std::string("a KV cache in ") + name_of(o.plan.kv) + " on a CUDA device, expected bf16");
  return {};
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
  const int64_t length = first + o.warmup + o.steps + 1;
  HB_ASSIGN(CudaWeights weights, random_cuda_weights(config, o.plan, device, length));
  report.layer_bytes = weights.linear_bytes();
  report.head_bytes = weights.head.storage.view.bytes;
  const int64_t pages_each = (length + kPageTokens - 1) / kPageTokens;
  const CudaKvShape kv{config.layers, config.kv_heads, config.head_dim, kPageTokens};
  HB_ASSIGN(const std::unique_ptr<CudaPass> pass,
            CudaPass::create(std::make_shared<const CudaWeights>(std::move(weights)), kv, pages_each * o.batch));
  HB_TRY(pass->fill_cache_randomly());
  const auto tables = tables_of(o.batch, pages_each);
  std::vector<CudaRow> rows;
  for (int i = 0; i < o.batch; ++i)
    rows.push_back({i + 1, static_cast<int32_t>(first), tables[static_cast<size_t>(i)]});
  std::vector<uint64_t> stamps;
  HB_TRY(pass->decode_alone(rows, o.warmup + o.steps, stamps));
  const cuda::Clocks clocks = cuda::current_clocks(0);
  report.sm_mhz = clocks.sm_mhz;
  report.memory_mhz = clocks.memory_mhz;
  for (size_t i = static_cast<size_t>(o.warmup); i < stamps.size(); ++i)
    report.step_ms.push_back(static_cast<double>(stamps[i] - stamps[i - 1]) / 1e6);
  const int64_t middle = first + o.warmup + o.steps / 2;
  report.kv_bytes = static_cast<uint64_t>(o.batch * middle * config.layers * 2 * config.kv_width() * 2);
  HB_ASSIGN(const double again, cuda::measure_read_gbps(kReadBytes, device.multiprocessors));
  report.read_gbps = std::max(report.read_gbps, again);
  return report;
}

}  // namespace halfbyte
