#include "tensor/quantize_tensor.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <vector>

#include "base/checked.h"
#include "formats/bf16.h"
#include "formats/fp8.h"
#include "formats/nvfp4.h"
#include "tensor/round_rows.h"

namespace halfbyte {
namespace {

// Rows read at a time by one thread, a multiple of `grain`: about 128 KiB of FP32, so that a row is still in the
// second-level cache when it is rounded.
int64_t rows_at_a_time(int64_t k, int64_t grain) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, k) / grain) * grain;
}

// Keeps the first failure of a parallel loop, by row, so that the message does not depend on timing.
class FirstFailure {
 public:
  void add(int64_t row, Status status) {
    const std::lock_guard lock(mutex_);
    if (status_.ok() || row < row_) {
      row_ = row;
      status_ = std::move(status);
    }
  }
  Status take() { return std::move(status_); }

 private:
  std::mutex mutex_;
  int64_t row_ = 0;
  Status status_;
};

const RowRounders& rounders() {
  static const RowRounders& fastest = *row_rounders_here().back();
  return fastest;
}

Status check_finite(const WeightSource& source, int64_t first, int64_t rows, std::span<const float> values) {
  if (is_finite(rounders().widest(values.data(), rows * source.k))) return {};
  for (int64_t i = 0; i < rows * source.k; ++i) {
    if (is_finite(values[i])) continue;
    return invalid_data(source.name + ": " + (is_nan(values[i]) ? "a NaN" : "an infinity") + " at row " +
                        std::to_string(first + i / source.k) + ", column " + std::to_string(i % source.k) +
                        " of the weight, expected finite numbers; the checkpoint is damaged");
  }
  return {};
}

// Calls body(first, rows, values) on chunks of rows, in parallel; each begins at a multiple of `grain`. Stops at failures.
template <class Body>
Status for_each_chunk(const WeightSource& source, int64_t grain, bool finite, ThreadPool& pool, const Body& body) {
  FirstFailure failure;
  const int64_t chunk = rows_at_a_time(source.k, grain);
  std::vector<std::vector<float>> buffers(static_cast<size_t>(pool.threads()));
  pool.parallel_for(source.n, grain, [&](int64_t begin, int64_t end, int thread) {
    std::vector<float>& buffer = buffers[static_cast<size_t>(thread)];
    buffer.resize(static_cast<size_t>(chunk * source.k));
    for (int64_t first = begin; first < end; first += chunk) {
      const int64_t rows = std::min(chunk, end - first);
      const std::span<float> values(buffer.data(), static_cast<size_t>(rows * source.k));
      Status status = source.read(first, rows, values);
      if (status.ok() && !finite) status = check_finite(source, first, rows, values);
      if (!status.ok()) return failure.add(first, std::move(status));
      body(first, rows, values, thread);
    }
  });
  return failure.take();
}

Status check_shape(const WeightSource& source) {
  if (source.n > 0 && source.k > 0 && checked_mul(source.n, source.k).value_or(UINT64_MAX) < (uint64_t{1} << 48))
    return {};
  return invalid_argument(source.name + ": cannot round a weight of shape [" + std::to_string(source.n) + ", " +
                          std::to_string(source.k) + "], expected 1 to 2^48 elements");
}

void quantize_one_row(const float* x, const QuantizeOptions& options, int64_t row, QuantLinear& out) {
  uint8_t* codes = out.codes.mutable_as<uint8_t>() + row * code_bytes_per_row(out.format, out.k);
  uint8_t* scales = out.block_scales.mutable_as<uint8_t>() + row * scale_bytes_per_row(out.format, out.k);
  switch (out.format) {
    case WeightFormat::kF32: std::memcpy(codes, x, static_cast<size_t>(out.k) * sizeof(float)); return;
    case WeightFormat::kBF16: rounders().bf16(x, out.k, out.codes.mutable_as<uint16_t>() + row * out.k); return;
    case WeightFormat::kFP8: {
      const float scale = FP8Row::scale(rounders().widest(x, out.k));
      rounders().fp8(x, out.k, scale, codes);
      std::memcpy(scales, &scale, sizeof scale);
      return;
    }
    case WeightFormat::kNVFP4: rounders().nvfp4_weight(x, out.k, out.tensor_scale, codes, scales); return;
    case WeightFormat::kMXFP4: rounders().mxfp4(x, out.k, options.mxfp4_rule, codes, scales); return;
  }
}

// A weight of n rows without codes yet, its tensor scale known.
Result<QuantLinear> begin_weight(const WeightSource& source, const QuantizeOptions& options, ThreadPool& pool) {
  HB_TRY(check_shape(source));
  QuantLinear out;
  out.name = source.name;
  out.format = options.format;
  out.n = source.n;
  out.k = source.k;
  if (options.format == WeightFormat::kNVFP4) {
    float amax = options.amax;
    if (amax == 0.0f) {
      HB_ASSIGN(amax, weight_amax(source, pool));
    }
    out.tensor_scale = NVFP4::tensor_scale(amax);
  }
  return out;
}

void allocate_rows(QuantLinear& w, int64_t rows) {
  w.n = rows;
  w.codes = Buffer::allocate(static_cast<size_t>(rows * code_bytes_per_row(w.format, w.k)));
  w.block_scales = Buffer::allocate(static_cast<size_t>(rows * scale_bytes_per_row(w.format, w.k)));
}

// `run` seen as rows first, first + 1, ... of a weight of n rows: its buffers begin where row 0 would lie.
QuantLinear placed_at(const QuantLinear& run, int64_t first, int64_t n) {
  const auto placed = [&](const Buffer& buffer, int64_t row_bytes) {
    const auto begin = reinterpret_cast<uintptr_t>(buffer.bytes().data()) - static_cast<uintptr_t>(first * row_bytes);
    return Buffer::borrow({reinterpret_cast<const std::byte*>(begin), static_cast<size_t>(n * row_bytes)}, nullptr);
  };
  QuantLinear out;
  out.format = run.format;
  out.n = n;
  out.k = run.k;
  out.tensor_scale = run.tensor_scale;
  out.codes = placed(run.codes, code_bytes_per_row(run.format, run.k));
  out.block_scales = placed(run.block_scales, scale_bytes_per_row(run.format, run.k));
  return out;
}

// weight_amax by WeightSource::largest; nothing where the source has none or a value is not finite.
std::optional<float> amax_without_values(const WeightSource& source, ThreadPool& pool) {
  if (!source.largest) return std::nullopt;
  std::vector<float> amax(static_cast<size_t>(pool.threads()), 0.0f);
  std::atomic<bool> known{true};
  pool.parallel_for(source.n, 1, [&](int64_t begin, int64_t end, int thread) {
    const std::optional<float> largest = source.largest(begin, end - begin);
    if (!largest || !is_finite(*largest))
      known = false;
    else
      amax[static_cast<size_t>(thread)] = std::max(amax[static_cast<size_t>(thread)], *largest);
  });
  return known ? std::optional(*std::max_element(amax.begin(), amax.end())) : std::nullopt;
}

}  // namespace

WeightSource weight_source(std::string name, const float* w, int64_t n, int64_t k) {
  return {std::move(name), n, k, [w, k](int64_t first, int64_t rows, std::span<float> out) {
            std::copy_n(w + first * k, rows * k, out.data());
            return Status();
          }};
}

Result<float> weight_amax(const WeightSource& source, ThreadPool& pool) {
  HB_TRY(check_shape(source));
  if (const std::optional<float> known = amax_without_values(source, pool)) return *known;
  std::vector<float> amax(static_cast<size_t>(pool.threads()), 0.0f);
  HB_TRY(for_each_chunk(source, 1, /*finite=*/false, pool,
                        [&](int64_t, int64_t rows, std::span<const float> values, int thread) {
                          float& mine = amax[static_cast<size_t>(thread)];
                          mine = std::max(mine, rounders().widest(values.data(), rows * source.k));
                        }));
  return *std::max_element(amax.begin(), amax.end());
}

Result<QuantLinear> quantize_weight(const WeightSource& source, const QuantizeOptions& options, ThreadPool& pool) {
  HB_ASSIGN(QuantLinear out, begin_weight(source, options, pool));
  allocate_rows(out, source.n);
  HB_TRY(for_each_chunk(source, 1, options.finite, pool,
                        [&](int64_t first, int64_t rows, std::span<const float> values, int) {
                          for (int64_t r = 0; r < rows; ++r)
                            quantize_one_row(values.data() + r * source.k, options, first + r, out);
                        }));
  return out;
}

Result<float> quantize_weight_runs(const WeightSource& source, const QuantizeOptions& options, int64_t run_rows,
                                   ThreadPool& pool, const TakeRows& take) {
  HB_ASSIGN(const QuantLinear whole, begin_weight(source, options, pool));
  std::vector<QuantLinear> runs(static_cast<size_t>(pool.threads()), whole);
  const auto body = [&](int64_t first, int64_t rows, std::span<const float> values, int thread) {
    QuantLinear& run = runs[static_cast<size_t>(thread)];
    if (run.codes.empty()) allocate_rows(run, run_rows);
    for (int64_t begin = 0; begin < rows; begin += run_rows) {
      const int64_t count = std::min(run_rows, rows - begin);
      for (int64_t r = 0; r < count; ++r) quantize_one_row(values.data() + (begin + r) * source.k, options, r, run);
      take(placed_at(run, first + begin, source.n), first + begin, first + begin + count);
    }
  };
  HB_TRY(for_each_chunk(source, run_rows, options.finite, pool, body));
  return whole.tensor_scale;
}

uint64_t rounding_bytes(WeightFormat format, int64_t k, int64_t run_rows) {
  const int64_t rows = std::max(rows_at_a_time(k, 1), rows_at_a_time(k, std::max<int64_t>(1, run_rows)));
  const int64_t run = run_rows * (code_bytes_per_row(format, k) + scale_bytes_per_row(format, k));
  return static_cast<uint64_t>(rows * k) * sizeof(float) + static_cast<uint64_t>(run);
}

void dequantize_row(const QuantLinear& w, int64_t row, std::span<float> out) {
  const auto* codes = w.codes.as<uint8_t>() + row * code_bytes_per_row(w.format, w.k);
  const auto* scales = w.block_scales.as<uint8_t>() + row * scale_bytes_per_row(w.format, w.k);
  switch (w.format) {
    case WeightFormat::kF32: std::memcpy(out.data(), codes, static_cast<size_t>(w.k) * sizeof(float)); return;
    case WeightFormat::kBF16:
      for (int64_t i = 0; i < w.k; ++i) {
        uint16_t code;
        std::memcpy(&code, codes + 2 * i, 2);  // a borrowed buffer may be unaligned
        out[i] = BF16::decode(code);
      }
      return;
    case WeightFormat::kFP8: {
      float scale;
      std::memcpy(&scale, scales, sizeof scale);
      for (int64_t i = 0; i < w.k; ++i) out[i] = E4M3::decode(codes[i]) * scale;
      return;
    }
    case WeightFormat::kNVFP4: NVFP4::dequantize_row(codes, scales, w.tensor_scale, w.k, out.data()); return;
    case WeightFormat::kMXFP4: MXFP4::dequantize_row(codes, scales, w.k, out.data()); return;
  }
}

}  // namespace halfbyte
