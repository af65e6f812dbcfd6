#include "memory_fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu_topology.h"
#include "base/memory_info.h"
#include "base/size_text.h"
#include "command.h"
#include "engine/checks.h"

namespace halfbyte::tools {
uint64_t MemoryFit::peak() const {
  return weights + std::max(loading, kv + work);
}

Result<MemoryFit> predict_memory(const LoadPlan& plan, int64_t context, int batch, int threads) {
  EngineOptions options;
  options.max_batch = batch;
  options.threads = threads;
  options.context = context > 0 ? context : plan.config.context;
  if (options.context > plan.config.context) {
    return invalid_argument(
        fmt::format("--ctx is {}, the model was made for {} tokens", options.context, plan.config.context));
  }
  options.kv_tokens = options.context * batch;
  HB_ASSIGN(const ResolvedOptions resolved, resolve_options(plan, options, /*available=*/UINT64_MAX));
  MemoryFit fit;
  fit.context = resolved.options.context;
  fit.batch = batch;
  fit.weights = plan.footprint.resident();
  fit.loading = plan.footprint.staging(threads > 0 ? threads : default_thread_count());
  fit.kv = resolved.footprint.kv;
  fit.work = resolved.footprint.work;
  fit.available = available_memory_bytes();
  return fit;
}

std::string memory_fit_text(const MemoryFit& fit) {
  std::string out = fmt::format("{} of {} tokens:\n", counted(fit.batch, "sequence"), fit.context);
  const auto row = [&](std::string_view name, uint64_t bytes, std::string_view remark) {
    out += fmt::format("  {:<10} {:>10}  {}\n", name, format_bytes(bytes), remark);
  };
  row("weights", fit.weights, "");
  row("loading", fit.loading, "beside the weights while they are made");
  row("KV cache", fit.kv, "when all sequences are full");
  row("work", fit.work, "activations, logits, samplers");
  row("peak", fit.peak(), "");
  row("available", fit.available, "");
  return out +
         (fit.fits() ? "fits\n" : fmt::format("does not fit: {} too much\n", format_bytes(fit.peak() - fit.available)));
}

}  // namespace halfbyte::tools
