// The CUDA linears and their rounding of inputs, against the reference kernels and the goldens of the definition.
#include <bit>
#include <random>

#include "base/thread_pool.h"
#include "kernels/cuda/cuda_support.h"
#include "kernels/linear_support.h"
#include "tensor/quantize_tensor.h"

namespace halfbyte::cuda::testing {
namespace {

using halfbyte::testing::make_linear;
using halfbyte::testing::open_golden;
using halfbyte::testing::run_linear;

RowMode row_mode(WeightFormat weights, ActivationMode mode) {
  const bool mx = weights == WeightFormat::kMXFP4;
  if (weights == WeightFormat::kBF16) return RowMode::kBf16Rows;
  if (mode == ActivationMode::kA8) return mx ? RowMode::kMxA8 : RowMode::kA8;
  if (mode == ActivationMode::kA4) return mx ? RowMode::kMxA4 : RowMode::kA4;
  return RowMode::kA16;
}

LinearPart part_of(const QuantLinear& w) {
  return {w.format,
          w.n,
          w.k,
          w.codes.bytes().data(),
          w.block_scales.bytes().data(),
          w.tensor_scale,
          w.bias.empty() ? nullptr : w.bias.data()};
}

std::vector<float> normal_rows(int64_t rows, int64_t k, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(rows * k));
  for (float& v : x) v = normal(rng) * std::ldexp(1.0f, static_cast<int>(rng() % 12) - 6);
  return x;
}

QuantLinear random_weight(WeightFormat format, int64_t n, int64_t k, uint32_t seed) {
  const auto w = normal_rows(n, k, seed);
  ThreadPool pool(1);
  auto q = quantize_weight(weight_source("w", w.data(), n, k), {.format = format}, pool);
  EXPECT_TRUE(q.ok()) << q.status().message();
  return std::move(q).value();
}

struct Case {
  WeightFormat weights;
  ActivationMode mode;
};
class CudaLinear : public ::testing::TestWithParam<Case> {};

// Odd sizes, all row counts; and a row's slots must not depend on the rows beside it, nor on a second run.
TEST_P(CudaLinear, EqualsReferenceAndIsBatchInvariant) {
  HB_NEED_DEVICE();
  const auto [weights, mode] = GetParam();
  const auto reference = find_linear_kernel(weights, mode, Isa::kRef);
  ASSERT_TRUE(reference.ok());
  struct Shape {
    int n, k;
  };
  for (const Shape shape : {Shape{256, 1280}, {576, 576}, {640, 80}, {331, 1536}}) {
    QuantLinear w = random_weight(weights, shape.n, shape.k, 5 + static_cast<uint32_t>(shape.n));
    w.bias = normal_rows(1, shape.n, 3);
    auto storage = cuda::make_linear({part_of(w)}, sms);
    ASSERT_TRUE(storage.ok()) << storage.status().message();
    const auto x = normal_rows(16, shape.k, 9);
    const auto expected = run_linear(**reference, w, x, 0.0f, w.bias.data());
    std::vector<float> first_slots;  // of row 0 alone
    for (const int rows : {1, 2, 3, 4, 7, 8, 16}) {
      const std::vector<float> head(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(rows) * shape.k);
      const Rounded rounded = round_rows(head, rows, storage->view, row_mode(weights, mode), 0.0f);
      const LinearResult got = run(*storage, rounded, rows), again = run(*storage, rounded, rows);
      const std::vector<float> wanted(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(rows) * shape.n);
      EXPECT_LT(relative_error(got.y, wanted), 2e-6) << shape.n << " x " << shape.k << ", " << rows << " rows";
      EXPECT_EQ(std::memcmp(got.y.data(), again.y.data(), got.y.size() * 4), 0) << "two runs differ";
      const std::vector<float> row0(got.y.begin(), got.y.begin() + shape.n);
      if (first_slots.empty()) first_slots = row0;
      EXPECT_EQ(std::memcmp(row0.data(), first_slots.data(), row0.size() * 4), 0)
          << "row 0 depends on its company at " << rows << " rows";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaLinear,
    ::testing::Values(Case{WeightFormat::kNVFP4, ActivationMode::kA16}, Case{WeightFormat::kNVFP4, ActivationMode::kA8},
                      Case{WeightFormat::kNVFP4, ActivationMode::kA4}, Case{WeightFormat::kMXFP4, ActivationMode::kA16},
                      Case{WeightFormat::kMXFP4, ActivationMode::kA8}, Case{WeightFormat::kMXFP4, ActivationMode::kA4},
                      Case{WeightFormat::kBF16, ActivationMode::kA16}));

// The definition's own vectors: shapes, outliers, zero blocks, static and per-token scales.
TEST(CudaLinearGolden, ComesNearTheDefinition) {
  HB_NEED_DEVICE();
  const auto golden = open_golden("linear");
  int cases = 0;
  for (const std::string& shape : golden.children("")) {
    const int k = static_cast<int>(golden.dims(shape + "/x")[1]);
    const int rows = static_cast<int>(golden.dims(shape + "/x")[0]);
    if (rows > kMaxRows || k % 4 != 0) continue;
    const auto x = golden.get<float>(shape + "/x");
    for (const WeightFormat format : {WeightFormat::kNVFP4, WeightFormat::kMXFP4}) {
      const bool mx = format == WeightFormat::kMXFP4;
      const std::string path = shape + (mx ? "/mxfp4" : "/nvfp4");
      const int64_t n = golden.dims(path + "/w_scales")[0];
      QuantLinear w =
          make_linear(format, n, k, golden.get<uint8_t>(path + "/w_codes").data(),
                      golden.get<uint8_t>(path + "/w_scales").data(), golden.scalar<float>(path + "/w_alpha"));
      if (golden.has(shape + "/bias")) w.bias = golden.get<float>(shape + "/bias");
      auto storage = cuda::make_linear({part_of(w)}, sms);
      ASSERT_TRUE(storage.ok()) << path << ": " << storage.status().message();
      for (const std::string& mode : golden.children(path)) {
        const ActivationMode activations = mode.starts_with("a16")  ? ActivationMode::kA16
                                           : mode.starts_with("a8") ? ActivationMode::kA8
                                                                    : ActivationMode::kA4;
        if (!mode.starts_with("a") || mode == "a16i16" || !golden.has(path + "/" + mode + "/y")) continue;
        const float alpha = mode.ends_with("_static") ? golden.scalar<float>(shape + "/input_scale") : 0.0f;
        const auto expected = golden.get<float>(path + "/" + mode + "/y");
        const Rounded rounded = round_rows(x, rows, storage->view, row_mode(format, activations), alpha);
        const auto got = run(*storage, rounded, rows).y;
        std::vector<float> finite_got, finite_expected;
        for (size_t i = 0; i < expected.size(); ++i) {
          if (std::isnan(expected[i])) {
            EXPECT_TRUE(std::isnan(got[i])) << path << "/" << mode << " output " << i << ": a NaN was lost";
            continue;
          }
          finite_got.push_back(got[i]);
          finite_expected.push_back(expected[i]);
        }
        EXPECT_LT(relative_error(finite_got, finite_expected), 2e-6) << path << "/" << mode;
        ++cases;
      }
    }
  }
  EXPECT_GT(cases, 10);
}

// Stacked weights with scales of their own give what each gives alone, row for row.
TEST(CudaLinear, StacksWeightsOfOneInput) {
  HB_NEED_DEVICE();
  const QuantLinear a = random_weight(WeightFormat::kNVFP4, 200, 256, 1),
                    b = random_weight(WeightFormat::kNVFP4, 72, 256, 2);
  auto both = cuda::make_linear({part_of(a), part_of(b)}, sms);
  ASSERT_TRUE(both.ok());
  const auto x = normal_rows(2, 256, 3);
  const auto reference = find_linear_kernel(WeightFormat::kNVFP4, ActivationMode::kA16, Isa::kRef);
  const auto ya = run_linear(**reference, a, x, 0.0f, nullptr), yb = run_linear(**reference, b, x, 0.0f, nullptr);
  std::vector<float> expected;
  for (int m = 0; m < 2; ++m) {
    expected.insert(expected.end(), ya.begin() + m * 200, ya.begin() + (m + 1) * 200);
    expected.insert(expected.end(), yb.begin() + m * 72, yb.begin() + (m + 1) * 72);
  }
  const auto got = run(*both, round_rows(x, 2, both->view, RowMode::kA16, 0.0f), 2).y;
  EXPECT_LT(relative_error(got, expected), 2e-6);
}

// A linear that merges attention's parts for itself leaves the slots and the row scales of the two kernels, bit for bit.
TEST(CudaLinear, MergesAsTheRowOperationDoes) {
  HB_NEED_DEVICE();
  constexpr int kHeads = 32, kDim = 128, kK = kHeads * kDim;
  const auto linear = make_random_linear(WeightFormat::kNVFP4, kK, kK, sms, 3);
  ASSERT_TRUE(linear.ok()) << linear.status().message();
  const auto parts = normal_rows(2 * kHeads * kMaxSplits, kDim, 4);
  std::vector<float> stats(2 * kHeads * kMaxSplits * 2);
  for (size_t i = 0; i < stats.size(); i += 2) {
    stats[i] = parts[i];
    stats[i + 1] = 1.0f + std::abs(parts[i + 1]);
  }
  std::vector<int32_t> places(kMaxRows, -1);
  places[0] = 1029;
  places[1] = 77;
  const DeviceBuffer dparts = upload(parts), dstats = upload(stats), positions = upload(places);
  const Linear& view = linear->view;
  struct Rounding {
    RowMode mode;
    float alpha;
  };
  for (const Rounding r :
       {Rounding{RowMode::kA16, 0.0f}, Rounding{RowMode::kMxA8, 0.0f}, Rounding{RowMode::kMxA4, 0.0f},
        Rounding{RowMode::kA4, 0.01f}, Rounding{RowMode::kA4, 0.0f}, Rounding{RowMode::kA8, 0.0f}}) {
    for (const int rows : {1, 2}) {
      const DeviceBuffer x = device_bytes(x_bytes(view, rows)), scales = device_bytes(kMaxRows * 4),
                         own_x = device_bytes(x_bytes(view, rows)), own_scales = device_bytes(kMaxRows * 4);
      const size_t floats = slot_floats(view, rows);
      const DeviceBuffer two = device_bytes(floats * 4, true), one = device_bytes(floats * 4, true);
      MergeRows args{dparts.as<float>(), dstats.as<float>(), positions.as<int32_t>(), kHeads, kDim, {}};
      args.out = {r.mode, r.alpha, x.as<void>(), scales.as<float>()};
      HB_OK(merge_rows(args, rows, {}));
      HB_OK(cuda::run_linear(view, rows, x.as<void>(), two.as<float>(), {}));
      args.out = {r.mode, r.alpha, own_x.as<void>(), own_scales.as<float>()};
      HB_OK(run_merge_linear(args, view, rows, one.as<float>(), {}));
      EXPECT_EQ(download<uint32_t>(two, floats), download<uint32_t>(one, floats))
          << "mode " << static_cast<int>(r.mode) << ", alpha " << r.alpha << ", " << rows << " rows";
      EXPECT_EQ(download<uint32_t>(scales, kMaxRows), download<uint32_t>(own_scales, kMaxRows));
    }
  }
}

TEST(CudaLinear, RefusesMxfp4ScalesThatSpanTooMuch) {
  HB_NEED_DEVICE();
  const std::vector<uint8_t> codes(64 * 16, 0x11);
  std::vector<uint8_t> scales(64, 127);
  scales[3] = 80;
  const LinearPart part{WeightFormat::kMXFP4, 64, 32, codes.data(), scales.data(), 1.0f, nullptr};
  const auto made = cuda::make_linear({part}, sms);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("span more than 2^31"), std::string::npos) << made.status().message();
}

}  // namespace
}  // namespace halfbyte::cuda::testing
