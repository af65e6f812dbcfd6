// What linears of both weight formats share: making them, and their result as a reader sees it.
#include <algorithm>
#include <bit>
#include <cmath>
#include <mutex>
#include <utility>

#include "kernels/cuda/linear_lists.h"
#include "kernels/cuda/prompt_layout.h"
#include "kernels/cuda/step_layout.h"

namespace halfbyte::cuda {
namespace {

Status upload_bias(LinearStorage& storage, const std::vector<LinearPart>& parts) {
  std::vector<float> bias(static_cast<size_t>(storage.view.rows), 0.0f);
  size_t row = 0;
  bool any = false;
  for (const LinearPart& part : parts) {
    if (part.bias != nullptr) {
      any = true;
      std::copy(part.bias, part.bias + part.n, bias.begin() + static_cast<std::ptrdiff_t>(row));
    }
    row += static_cast<size_t>(part.n);
  }
  if (!any) return {};
  HB_ASSIGN(storage.bias, DeviceBuffer::make(bias.size() * sizeof(float)));
  HB_TRY(storage.bias.upload(bias.data(), bias.size() * sizeof(float)));
  storage.view.bias = storage.bias.as<float>();
  return {};
}

std::mutex table_mutex;
LinearTable linear_table;

void choose_kernels(Linear& linear) {
  const KernelSet& set = active_kernels();
  linear.kernels.fill(set.linear);
  if (!linear.fp4 || set.forced) return;
  const std::lock_guard lock(table_mutex);
  for (size_t i = 0; i < linear.kernels.size(); ++i)
    linear.kernels[i] = linear_table.best(linear.n, linear.k, 1 << i).value_or(set.linear);
}

}  // namespace

void use_linear_table(LinearTable table) {
  const std::lock_guard lock(table_mutex);
  linear_table = std::move(table);
}

Result<LinearStorage> make_linear(const std::vector<LinearPart>& parts, int multiprocessors) {
  const WeightFormat format = parts[0].format;
  int64_t n = 0;
  for (const LinearPart& part : parts) {
    n += part.n;
    if (part.format != format || part.k != parts[0].k)
      return unsupported(
          "weights that share an input but not their format, on a CUDA device; run the model on the CPU");
  }
  const int64_t k = parts[0].k;
  if (format == WeightFormat::kF32)
    return unsupported("FP32 weights on a CUDA device; choose a plan with bf16, nvfp4 or mxfp4 weights");
  const bool bf16 = format == WeightFormat::kBF16;
  auto storage = bf16 ? bf16_storage(n, k, multiprocessors) : fp4_storage(n, k, multiprocessors);
  if (!storage.ok()) return storage;
  choose_kernels(storage->view);
  if (bf16) {
    HB_ASSIGN(DeviceBuffer rows, DeviceBuffer::make(storage->view.bytes));
    size_t at = 0;
    for (const LinearPart& part : parts) {
      const auto bytes = static_cast<size_t>(part.n * k) * 2;
      HB_TRY(rows.upload(part.codes, bytes, at));
      at += bytes;
    }
    HB_TRY(pack_bf16(*storage, rows));
  } else {
    HB_TRY(pack_fp4(*storage, parts));
  }
  HB_TRY(upload_bias(*storage, parts));
  return storage;
}

Result<LinearStorage> make_random_linear(WeightFormat format, int64_t n, int64_t k, int multiprocessors,
                                         uint64_t seed) {
  if (format != WeightFormat::kBF16) {
    auto storage = fp4_storage(n, k, multiprocessors);
    if (!storage.ok()) return storage;
    choose_kernels(storage->view);
    HB_TRY(randomise_fp4(*storage, format, seed));
    return storage;
  }
  auto storage = bf16_storage(n, k, multiprocessors);
  if (storage.ok())
    HB_TRY(fill_random_bf16(storage->weights.as<void>(), storage->weights.size() / 2,
                            std::sqrt(3.0f / static_cast<float>(k)), seed, {}));
  return storage;
}

LinearKernel linear_kernel_of(const Linear& linear, int rows) {
  if (!active_kernels().ring) return LinearKernel::kStages;
  return linear.kernels[static_cast<size_t>(std::countr_zero(static_cast<unsigned>(padded_rows(rows))))];
}

Status run_linear(const Linear& linear, int rows, const void* x, float* partial, Launch launch) {
  if (!linear.fp4) return run_bf16(linear, rows, x, partial, launch);
  return linear_kernel_of(linear, rows) == LinearKernel::kRing ? run_ring(linear, rows, x, partial, launch)
                                                               : run_stages(linear, rows, x, partial, launch);
}

Status run_prompt_linear(const Linear& linear, int rows, const void* x, float* y, Launch launch, int tile) {
  if (active_kernels().wgmma) return run_prompt_wgmma(linear, rows, x, y, launch, tile);
  if (linear.fp4) return run_fp4_prompt_portable(linear, rows, x, y, launch, tile);
  for (int first = 0; first < rows; first += kMaxRows) {
    const auto at = static_cast<size_t>(first);
    HB_TRY(run_bf16(linear, std::min(kMaxRows, rows - first),
                    static_cast<const uint16_t*>(x) + at * static_cast<size_t>(linear.k),
                    y + at * static_cast<size_t>(linear.rows), launch));
  }
  return {};
}

int prompt_layout_rows(const Linear& linear, int rows) {
  return linear.fp4 || active_kernels().wgmma ? padded_prompt_rows(rows) : 0;
}

SlotView prompt_slots_of(const Linear& linear, int rows, const float* y, const float* x_scale) {
  return {
      y, nullptr, linear.scales, linear.bias, linear.fp4 ? x_scale : nullptr, linear.rows, padded_prompt_rows(rows)};
}

SlotView slots_of(const Linear& linear, int rows, const float* partial, const float* x_scale) {
  return {partial,     linear.slot_counts, linear.scales, linear.bias, linear.fp4 ? x_scale : nullptr,
          linear.rows, padded_rows(rows)};
}

}  // namespace halfbyte::cuda
