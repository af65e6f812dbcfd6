// What the tests of the CUDA operations share. They skip, with the reason, where no device can run the kernels.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <vector>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/step_layout.h"

namespace halfbyte::cuda::testing {

// HALFBYTE_KERNELS=portable runs the tests with those kernels.
inline ForcedKernels kernels_of_environment() {
  const char* name = std::getenv("HALFBYTE_KERNELS");
  const auto forced = forced_kernels_named(name != nullptr ? name : "");
  if (!forced.ok()) throw std::runtime_error(forced.status().message());
  return *forced;
}

#define HB_NEED_DEVICE()                                                                \
  ::halfbyte::cuda::force_kernels(::halfbyte::cuda::testing::kernels_of_environment()); \
  const auto usable = ::halfbyte::cuda::usable_device(0);                               \
  if (!usable.ok()) GTEST_SKIP() << "no CUDA device: " << usable.status().message();    \
  [[maybe_unused]] const int sms = usable->multiprocessors

#define HB_OK(expr)                                               \
  do {                                                            \
    const ::halfbyte::Status hb_test_status = (expr);             \
    ASSERT_TRUE(hb_test_status.ok()) << hb_test_status.message(); \
  } while (false)

// Normal values whose sizes are spread over eight powers of two.
inline std::vector<float> spread_normals(int64_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(count));
  for (float& v : out) v = normal(rng) * std::ldexp(1.0f, static_cast<int>(rng() % 8) - 4);
  return out;
}

template <class T>
DeviceBuffer upload(const std::vector<T>& values) {
  auto made = DeviceBuffer::make(values.size() * sizeof(T) + 16);
  if (!made.ok()) throw std::runtime_error(made.status().message());
  const Status s = made->upload(values.data(), values.size() * sizeof(T));
  if (!s.ok()) throw std::runtime_error(s.message());
  return std::move(made).value();
}

inline DeviceBuffer device_bytes(size_t bytes, bool poison = false) {
  auto made = DeviceBuffer::make(bytes, true);
  if (!made.ok()) throw std::runtime_error(made.status().message());
  if (poison) {
    const std::vector<uint8_t> ones(bytes, 0xFF);  // NaN: an unwritten output shows
    const Status s = made->upload(ones.data(), bytes);
    if (!s.ok()) throw std::runtime_error(s.message());
  }
  return std::move(made).value();
}

template <class T>
std::vector<T> download(const DeviceBuffer& from, size_t count) {
  std::vector<T> out(count);
  const Status s = from.download(out.data(), count * sizeof(T));
  if (!s.ok()) throw std::runtime_error(s.message());
  return out;
}

inline double relative_error(const std::vector<float>& got, const std::vector<float>& expected) {
  double error = 0, norm = 1e-300;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(static_cast<double>(got[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  return std::sqrt(error / norm);  // NaN never passes a comparison
}

// Rounds rows x [rows, k] for `linear` through merge_rows: attention of one part with weight 1 gives x itself.
struct Rounded {
  DeviceBuffer x, scales;
};
inline Rounded round_rows(const std::vector<float>& x, int rows, const Linear& linear, RowMode mode, float alpha) {
  const int k = linear.k;
  std::vector<float> parts(static_cast<size_t>(rows) * kMaxSplits * k),
      stats(static_cast<size_t>(rows) * kMaxSplits * 2);
  for (int m = 0; m < rows; ++m) {
    std::copy(x.begin() + static_cast<std::ptrdiff_t>(m) * k, x.begin() + static_cast<std::ptrdiff_t>(m + 1) * k,
              parts.begin() + static_cast<std::ptrdiff_t>(m) * kMaxSplits * k);
    stats[static_cast<size_t>(m) * kMaxSplits * 2 + 1] = 1.0f;
  }
  const DeviceBuffer device_parts = upload(parts), device_stats = upload(stats);
  const DeviceBuffer positions = upload(std::vector<int32_t>(kMaxRows, 0));
  Rounded out{device_bytes(x_bytes(linear, rows)), device_bytes(kMaxRows * 4)};
  MergeRows args{device_parts.as<float>(),
                 device_stats.as<float>(),
                 positions.as<int32_t>(),
                 1,
                 k,
                 {mode, alpha, out.x.as<void>(), out.scales.as<float>()}};
  const Status s = merge_rows(args, rows, {});
  if (!s.ok()) throw std::runtime_error(s.message());
  return out;
}

// Slots [slot][M][rows] of a linear, and the y that a reader makes of them.
struct LinearResult {
  std::vector<float> slots;
  std::vector<float> y;  // [rows][n]
};
inline LinearResult run(const LinearStorage& storage, const Rounded& rounded, int rows) {
  const Linear& v = storage.view;
  const DeviceBuffer partial = device_bytes(slot_floats(v, rows) * 4, /*poison=*/true);
  const Status s = run_linear(v, rows, rounded.x.as<void>(), partial.as<float>(), {});
  if (!s.ok()) throw std::runtime_error(s.message());
  LinearResult out;
  out.slots = download<float>(partial, slot_floats(v, rows));
  const auto scales = download<float>(rounded.scales, kMaxRows);
  std::vector<float> factors, bias;
  std::vector<uint8_t> counts;
  if (v.fp4) {
    factors = download<float>(storage.scales, static_cast<size_t>(v.rows));
    counts = download<uint8_t>(storage.slot_counts, static_cast<size_t>(v.rows / kPanelRows));
  }
  if (v.bias != nullptr) bias = download<float>(storage.bias, static_cast<size_t>(v.rows));
  const size_t columns = static_cast<size_t>(padded_rows(rows)), stride = columns * static_cast<size_t>(v.rows);
  for (int m = 0; m < rows; ++m) {
    for (int r = 0; r < v.n; ++r) {
      const size_t at = static_cast<size_t>(m) * v.rows + static_cast<size_t>(r);
      float sum = out.slots[at];
      for (int slot = 1; v.fp4 && slot < counts[static_cast<size_t>(r / kPanelRows)]; ++slot)
        sum += out.slots[slot * stride + at];
      if (v.fp4) sum *= factors[static_cast<size_t>(r)] * scales[static_cast<size_t>(m)];
      out.y.push_back(bias.empty() ? sum : sum + bias[static_cast<size_t>(r)]);
    }
  }
  return out;
}

}  // namespace halfbyte::cuda::testing
