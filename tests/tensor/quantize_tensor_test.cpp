// Rounding of whole weights: equal to the row quantisers whatever the threads, and messages for weights that cannot be.
#include "tensor/quantize_tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "formats/bf16.h"
#include "formats/nvfp4.h"

namespace halfbyte {
namespace {

using ::testing::HasSubstr;

std::vector<float> values(int64_t n, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> w(static_cast<size_t>(n));
  for (float& v : w) v = normal(rng);
  return w;
}

std::vector<float> dequantised(const QuantLinear& q) {
  std::vector<float> out(static_cast<size_t>(q.n * q.k));
  for (int64_t r = 0; r < q.n; ++r) dequantize_row(q, r, std::span(out).subspan(r * q.k, q.k));
  return out;
}

constexpr WeightFormat kFormats[] = {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kFP8, WeightFormat::kNVFP4,
                                     WeightFormat::kMXFP4};

TEST(QuantizeTensor, SameBytesForAnyNumberOfThreads) {
  const int64_t n = 37, k = 83;
  const std::vector<float> w = values(n * k, 1);
  for (WeightFormat format : kFormats) {
    ThreadPool one(1), three(3);
    const auto a = quantize_weight(weight_source("w", w.data(), n, k), {.format = format}, one);
    const auto b = quantize_weight(weight_source("w", w.data(), n, k), {.format = format}, three);
    ASSERT_TRUE(a.ok() && b.ok());
    ASSERT_EQ(a->codes.size(), static_cast<size_t>(n * code_bytes_per_row(format, k)));
    ASSERT_EQ(a->block_scales.size(), static_cast<size_t>(n * scale_bytes_per_row(format, k)));
    EXPECT_EQ(std::memcmp(a->codes.bytes().data(), b->codes.bytes().data(), a->codes.size()), 0);
    EXPECT_EQ(std::memcmp(a->block_scales.bytes().data(), b->block_scales.bytes().data(), a->block_scales.size()), 0);
    EXPECT_EQ(a->tensor_scale, b->tensor_scale);
    EXPECT_EQ(a->name, "w");
  }
}

// Runs see the same bytes at the same rows as the whole copy, whatever the threads and the run.
TEST(QuantizeTensor, RunsEqualTheWhole) {
  const int64_t n = 101, k = 83;
  const std::vector<float> w = values(n * k, 5);
  const WeightSource source = weight_source("w", w.data(), n, k);
  for (WeightFormat format : kFormats) {
    ThreadPool pool(3);
    const auto whole = quantize_weight(source, {.format = format}, pool);
    ASSERT_TRUE(whole.ok());
    const auto code_bytes = static_cast<size_t>(code_bytes_per_row(format, k));
    const auto scale_bytes = static_cast<size_t>(scale_bytes_per_row(format, k));
    for (const int64_t run_rows : {1, 16, 64, 200}) {
      std::vector<int> seen(n, 0);
      const auto scale = quantize_weight_runs(
          source, {.format = format}, run_rows, pool, [&](const QuantLinear& run, int64_t begin, int64_t end) {
            EXPECT_EQ(begin % run_rows, 0);
            EXPECT_TRUE(end % run_rows == 0 || end == n);
            EXPECT_EQ(run.n, n);
            for (int64_t r = begin; r < end; ++r) {
              ++seen[r];
              EXPECT_EQ(std::memcmp(run.codes.as<uint8_t>() + r * code_bytes,
                                    whole->codes.as<uint8_t>() + r * code_bytes, code_bytes),
                        0);
              EXPECT_EQ(std::memcmp(run.block_scales.as<uint8_t>() + r * scale_bytes,
                                    whole->block_scales.as<uint8_t>() + r * scale_bytes, scale_bytes),
                        0);
            }
          });
      ASSERT_TRUE(scale.ok());
      EXPECT_EQ(*scale, whole->tensor_scale);
      EXPECT_EQ(seen, std::vector<int>(n, 1)) << "every row once";
    }
  }
}

TEST(QuantizeTensor, RoundTrip) {
  const int64_t n = 8, k = 48;
  std::vector<float> w = values(n * k, 2);
  for (int64_t i = 0; i < k; ++i) w[3 * k + i] = 0.0f;  // a zero row
  ThreadPool pool(2);
  for (WeightFormat format : kFormats) {
    const auto q = quantize_weight(weight_source("w", w.data(), n, k), {.format = format}, pool);
    ASSERT_TRUE(q.ok());
    const std::vector<float> back = dequantised(*q);
    for (int64_t i = 0; i < n * k; ++i) {
      const float x = w[i], y = back[i];
      // Half the widest gap of E2M1 at |w| < 5 bounds the FP4 formats.
      const float bound = format == WeightFormat::kF32    ? 0.0f
                          : format == WeightFormat::kBF16 ? std::fabs(x) / 256
                          : format == WeightFormat::kFP8  ? std::fabs(x) / 16 + 1e-5f
                                                          : 1.4f;
      EXPECT_LE(std::fabs(x - y), bound);
      if (i / k == 3) {
        EXPECT_EQ(y, 0.0f);
      }
    }
    // Rounding what is already rounded changes nothing.
    const auto again = quantize_weight(weight_source("w", back.data(), n, k),
                                       {.format = format, .amax = q->tensor_scale * 2688}, pool);
    ASSERT_TRUE(again.ok());
    if (format != WeightFormat::kNVFP4) {  // there a block whose largest element rounded down gets a smaller scale
      EXPECT_EQ(dequantised(*again), back);
    }
  }
}

// What a thread holds at once: the rows that it reads and the run that they are rounded into.
TEST(QuantizeTensor, RoundingBytesAreWhatAThreadTakes) {
  for (const int64_t k : {83, 4096, 40000}) {
    const int64_t n = std::max<int64_t>(48, 100000 / k);
    const std::vector<float> w = values(n * k, 6);
    for (const WeightFormat format : kFormats) {
      for (const int64_t run_rows : {1, 16}) {
        WeightSource source = weight_source("w", w.data(), n, k);
        size_t read = 0;
        source.read = [&, copy = source.read](int64_t first, int64_t rows, std::span<float> out) {
          read = std::max(read, out.size_bytes());
          return copy(first, rows, out);
        };
        ThreadPool pool(1);
        ASSERT_TRUE(quantize_weight_runs(source, {.format = format}, run_rows, pool, [](auto&&...) {}).ok());
        const int64_t row = code_bytes_per_row(format, k) + scale_bytes_per_row(format, k);
        const uint64_t taken = read + static_cast<uint64_t>(run_rows * row);
        EXPECT_GE(rounding_bytes(format, k, run_rows), taken) << k << " " << run_rows;
        EXPECT_LT(rounding_bytes(format, k, run_rows), taken + taken / 8) << k << " " << run_rows;
        EXPECT_GE(rounding_bytes(format, k, 0), static_cast<uint64_t>(k) * sizeof(float));
      }
    }
  }
}

TEST(QuantizeTensor, AmaxWithoutValuesIsUsedWhereItIsFinite) {
  ThreadPool pool(2);
  const std::vector<float> w = {1.0f, -3.0f, 2.0f, 0.5f};
  WeightSource source = weight_source("q", w.data(), 2, 2);
  source.largest = [](int64_t first, int64_t rows) { return std::optional(static_cast<float>(first + rows)); };
  EXPECT_EQ(*weight_amax(source, pool), 2.0f);  // what `largest` says, not the values
  source.largest = [](int64_t, int64_t) { return std::optional<float>(); };
  EXPECT_EQ(*weight_amax(source, pool), 3.0f);
  source.largest = [](int64_t, int64_t) { return std::optional(INFINITY); };  // then the values say where
  EXPECT_EQ(*weight_amax(source, pool), 3.0f);
}

TEST(QuantizeTensor, SharedAmaxIsUsed) {
  const std::vector<float> w = {1.0f, -2.0f, 0.5f, 3.0f};
  ThreadPool pool(1);
  const auto own = quantize_weight(weight_source("q", w.data(), 2, 2), {.format = WeightFormat::kNVFP4}, pool);
  const auto shared =
      quantize_weight(weight_source("q", w.data(), 2, 2), {.format = WeightFormat::kNVFP4, .amax = 12.0f}, pool);
  ASSERT_TRUE(own.ok() && shared.ok());
  EXPECT_EQ(own->tensor_scale, 3.0f / 2688.0f);
  EXPECT_EQ(shared->tensor_scale, 12.0f / 2688.0f);
  EXPECT_EQ(*weight_amax(weight_source("q", w.data(), 2, 2), pool), 3.0f);
}

TEST(QuantizeTensor, RefusesWhatIsNotFinite) {
  ThreadPool pool(3);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> w = values(60 * 5, 3);
    w[17 * 5 + 2] = bad;
    w[40 * 5] = bad;  // the first one is named, whichever thread meets its own first
    for (WeightFormat format : kFormats) {
      const auto q = quantize_weight(weight_source("layers.3.mlp.up_proj", w.data(), 60, 5), {.format = format}, pool);
      ASSERT_FALSE(q.ok());
      EXPECT_EQ(q.status().code(), StatusCode::kInvalidData);
      EXPECT_THAT(q.status().message(), HasSubstr("layers.3.mlp.up_proj"));
      EXPECT_THAT(q.status().message(), HasSubstr("row 17, column 2"));
    }
  }
}

TEST(QuantizeTensor, PassesOnTheReadersFailure) {
  ThreadPool pool(2);
  const WeightSource broken{"w", 10, 4,
                            [](int64_t, int64_t, std::span<float>) { return invalid_data("file ends early"); }};
  const auto q = quantize_weight(broken, {.format = WeightFormat::kBF16}, pool);
  ASSERT_FALSE(q.ok());
  EXPECT_EQ(q.status().message(), "file ends early");
  const auto empty = quantize_weight(WeightSource{"w", 0, 4, {}}, {}, pool);
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace halfbyte
