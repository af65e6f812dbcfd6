// The CUDA linears and their rounding of inputs, against the reference kernels and the goldens of the definition.
#include <algorithm>
#include <array>
#include <bit>
#include <random>

#include "base/thread_pool.h"
#include "formats/bf16.h"
#include "formats/fp8.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"
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

struct Rounding {
  RowMode mode;
  float alpha;
};
constexpr Rounding kRoundings[] = {{RowMode::kA16, 0.0f}, {RowMode::kMxA8, 0.0f}, {RowMode::kMxA4, 0.0f},
                                   {RowMode::kA4, 0.01f}, {RowMode::kA4, 0.0f},   {RowMode::kA8, 0.0f},
                                   {RowMode::kA8, 0.001f}};

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
  for (const Rounding r : kRoundings) {
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

// A linear that rounds an open row for itself leaves the slots and the row scales of the two kernels, bit for bit; and they
// do not depend on the number of rows.
TEST(CudaLinear, RoundsOpenRowsAsRowOperationsDo) {
  HB_NEED_DEVICE();
  struct Shape {
    int n, k;
  };
  for (const Shape shape : {Shape{6144, 4096}, {1024, 12288}, {331, 712}}) {
    const auto linear = make_random_linear(WeightFormat::kNVFP4, shape.n, shape.k, sms, 3);
    ASSERT_TRUE(linear.ok()) << linear.status().message();
    const Linear& view = linear->view;
    const auto y = normal_rows(4, 2 * shape.k, 4), residual = normal_rows(4, shape.k, 5),
               w = normal_rows(1, shape.k, 6);
    const DeviceBuffer dy = upload(y), dw = upload(w), positions = upload(std::vector<int32_t>(kMaxRows, 0));
    for (const Rounding r : kRoundings) {
      for (const bool norm : {true, false}) {
        std::vector<uint32_t> alone;  // row 0 of one row
        for (const int rows : {1, 2, 4}) {
          const size_t floats = slot_floats(view, rows);
          const auto run = [&](bool fused) {
            const DeviceBuffer x = device_bytes(x_bytes(view, rows)), scales = device_bytes(kMaxRows * 4),
                               dr = upload(residual), slots = device_bytes(floats * 4, true);
            SlotView in;
            in.partial = dy.as<float>();
            in.rows = 2 * shape.k;
            in.columns = rows;
            const RowOutput out{r.mode, r.alpha, x.as<void>(), scales.as<float>()};
            NormRows n;
            n.y = in;
            n.positions = positions.as<int32_t>();
            n.residual = dr.as<float>();
            n.weight = dw.as<float>();
            n.k = shape.k;
            n.out = out;
            const SiluRows s{in, positions.as<int32_t>(), shape.k, out};
            const auto must = [](const Status& status) {
              if (!status.ok()) throw std::runtime_error(status.message());
            };
            if (fused) {
              must(norm ? run_norm_linear(n, view, rows, slots.as<float>(), {})
                        : run_silu_linear(s, view, rows, slots.as<float>(), {}));
              // An open row leaves x^ as it was: zero.
              const auto xs = download<uint32_t>(x, static_cast<size_t>(view.k_steps * x_chunk_bytes(rows)) / 4);
              const bool looks_at_row = (r.mode == RowMode::kA8 || r.mode == RowMode::kA4) && r.alpha == 0.0f;
              const bool may_open = active_kernels().clusters && view.kernels[0] == LinearKernel::kRing;
              EXPECT_EQ(std::all_of(xs.begin(), xs.end(), [](uint32_t v) { return v == 0; }),
                        may_open && rows == 1 && (norm || looks_at_row))
                  << (norm ? "norm" : "silu") << ", mode " << static_cast<int>(r.mode) << ", " << rows << " rows";
            } else {
              must(norm ? norm_rows(n, rows, {}) : silu_rows(s, rows, {}));
              must(cuda::run_linear(view, rows, x.as<void>(), slots.as<float>(), {}));
            }
            auto got = download<uint32_t>(slots, floats);
            const auto row_scales = download<uint32_t>(scales, static_cast<size_t>(rows));
            const auto after = download<uint32_t>(dr, residual.size());
            got.insert(got.end(), row_scales.begin(), row_scales.end());
            got.insert(got.end(), after.begin(), after.end());
            return got;
          };
          const auto two = run(false), one = run(true);
          EXPECT_EQ(two, one) << (norm ? "norm" : "silu") << ", mode " << static_cast<int>(r.mode) << ", alpha "
                              << r.alpha << ", " << rows << " rows of " << shape.k;
          const std::vector<uint32_t> first(one.begin(), one.begin() + shape.n);  // slot 0 of row 0
          if (alone.empty()) alone = first;
          EXPECT_EQ(first, alone) << "row 0 depends on its company, mode " << static_cast<int>(r.mode);
        }
      }
    }
  }
}

// x^ of values about every border of the formats, large and small, against the definition.
TEST(CudaRounding, GivesTheDefinitionsNumbers) {
  HB_NEED_DEVICE();
  constexpr int kK = 2048, kRows = 8;
  const auto linear = make_random_linear(WeightFormat::kNVFP4, 128, kK, sms, 3);
  ASSERT_TRUE(linear.ok()) << linear.status().message();
  std::mt19937 rng(11);
  std::vector<float> x = normal_rows(kRows, kK, 12);
  for (int m = 0; m < kRows; ++m) {
    const int exponent = std::array{0, 0, 20, -20, 50, -70, -120, 3}[static_cast<size_t>(m)];
    for (int i = 0; i < kK; ++i) {
      float& v = x[static_cast<size_t>(m * kK + i)];
      if (m % 2 == 1 && i % 16 != 0) {  // near borders: the block's first value sets the scale
        constexpr std::array kBorders{0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f};
        const float border = kBorders[rng() % kBorders.size()] * std::ldexp(1.0f, static_cast<int>(rng() % 3));
        v = std::bit_cast<float>(std::bit_cast<uint32_t>(border) + static_cast<uint32_t>(rng() % 5) - 2u) *
            (rng() % 2 == 0 ? 1.0f : -1.0f);
      }
      if (m == 7 && i / 16 % 4 == 1) v = 0.0f;
      v = std::ldexp(v, exponent);
    }
  }
  for (const Rounding r : kRoundings) {
    const Rounded got = round_rows(x, kRows, linear->view, r.mode, r.alpha);
    const auto bits = download<uint16_t>(got.x, x_bytes(linear->view, kRows) / 2);
    const auto scales = download<float>(got.scales, kRows);
    for (int m = 0; m < kRows; ++m) {
      const float* row = x.data() + static_cast<ptrdiff_t>(m) * kK;
      std::vector<float> expected(kK);
      float scale = 1.0f;
      std::vector<uint8_t> codes(kK), block_scales(kK / 16);
      if (r.mode == RowMode::kA16) {
        for (int i = 0; i < kK; ++i) expected[static_cast<size_t>(i)] = BF16::round(row[i]);
      } else if (r.mode == RowMode::kA8) {
        scale = FP8Row::quantize_row(row, kK, r.alpha, codes.data());
        for (int i = 0; i < kK; ++i) expected[static_cast<size_t>(i)] = E4M3::decode(codes[static_cast<size_t>(i)]);
      } else if (r.mode == RowMode::kA4) {
        scale = r.alpha > 0.0f ? r.alpha : NVFP4::tensor_scale(abs_max(row, kK));
        NVFP4::quantize_activation_row(row, kK, scale, codes.data(), block_scales.data());
        NVFP4::dequantize_row(codes.data(), block_scales.data(), 1.0f, kK, expected.data());
      } else if (r.mode == RowMode::kMxA8) {
        MXFP8::quantize_row(row, kK, codes.data(), block_scales.data());
        for (int i = 0; i < kK; ++i)
          expected[static_cast<size_t>(i)] =
              E4M3::decode(codes[static_cast<size_t>(i)]) * E8M0::decode(block_scales[static_cast<size_t>(i / 32)]);
      } else {
        MXFP4::quantize_row(row, kK, Mxfp4Rule::kRound74, codes.data(), block_scales.data());
        MXFP4::dequantize_row(codes.data(), block_scales.data(), kK, expected.data());
      }
      ASSERT_EQ(scales[static_cast<size_t>(m)], scale) << "mode " << static_cast<int>(r.mode) << ", row " << m;
      for (int i = 0; i < kK; ++i) {
        const size_t at = static_cast<size_t>(i / kStepK * x_chunk_bytes(kRows) + x_offset(kRows, m, i % kStepK)) / 2;
        ASSERT_EQ(BF16::decode(bits[at]), std::ldexp(expected[static_cast<size_t>(i)], kXExponent))
            << "mode " << static_cast<int>(r.mode) << ", alpha " << r.alpha << ", row " << m << ", value " << i << ": "
            << row[i];
      }
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
