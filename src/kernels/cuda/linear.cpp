// What linears of both weight formats share: making them, and their result as a reader sees it.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/linear_lists.h"

namespace halfbyte::cuda {
namespace {

Result<LinearStorage> bf16_storage(int64_t n, int64_t k) {
  if (k % 8 != 0)
    return unsupported("a BF16 weight of " + std::to_string(n) + " x " + std::to_string(k) +
                       " on a CUDA device, expected a K that is a multiple of 8; run the model on the CPU");
  LinearStorage out;
  Linear& v = out.view;
  v.fp4 = false;
  v.n = static_cast<int>(n);
  v.k = static_cast<int>(k);
  v.rows = static_cast<int>((n + 3) / 4 * 4);
  v.bytes = static_cast<size_t>(n * k) * 2;
  HB_ASSIGN(out.weights, DeviceBuffer::make(v.bytes));
  v.weights = out.weights.as<uint8_t>();
  return Result<LinearStorage>(std::move(out));
}

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

}  // namespace

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
  auto storage = bf16 ? bf16_storage(n, k) : fp4_storage(n, k, multiprocessors);
  if (!storage.ok()) return storage;
  if (bf16) {
    size_t at = 0;
    for (const LinearPart& part : parts) {
      const auto bytes = static_cast<size_t>(part.n * k) * 2;
      HB_TRY(storage->weights.upload(part.codes, bytes, at));
      at += bytes;
    }
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
    if (storage.ok()) HB_TRY(randomise_fp4(*storage, format, seed));
    return storage;
  }
  auto storage = bf16_storage(n, k);
  if (storage.ok())
    HB_TRY(fill_random_bf16(storage->weights.as<void>(), static_cast<size_t>(n * k),
                            std::sqrt(3.0f / static_cast<float>(k)), seed, {}));
  return storage;
}

size_t x_bytes(const Linear& linear, int rows) {
  return linear.fp4 ? fp4_x_bytes(linear, rows)
                    : static_cast<size_t>(padded_rows(rows)) * static_cast<size_t>(linear.k) * 2;
}

size_t slot_floats(const Linear& linear, int rows) {
  return static_cast<size_t>(linear.fp4 ? kMaxSlots : 1) * static_cast<size_t>(padded_rows(rows)) *
         static_cast<size_t>(linear.rows);
}

Status run_linear(const Linear& linear, int rows, const void* x, float* partial, Launch launch) {
  return linear.fp4 ? run_fp4(linear, rows, x, partial, launch) : run_bf16(linear, rows, x, partial, launch);
}

SlotView slots_of(const Linear& linear, int rows, const float* partial, const float* x_scale) {
  return {partial,     linear.slot_counts, linear.scales, linear.bias, linear.fp4 ? x_scale : nullptr,
          linear.rows, padded_rows(rows)};
}

}  // namespace halfbyte::cuda
