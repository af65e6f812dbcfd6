// The portable kernels against the fast ones, bit for bit, on a device that runs both; HALFBYTE_KERNELS=portable runs all other
// tests of this program with them, too.
#include <cstring>
#include <random>

#include "kernels/cuda/cold_linear.h"
#include "kernels/cuda/cuda_support.h"

namespace halfbyte::cuda::testing {
namespace {

// Both families on one device; gives back what was active.
class CudaPortable : public ::testing::Test {
 protected:
  void SetUp() override {
    force_kernels(ForcedKernels::kNone);
    const auto device = usable_device(0);
    if (!device.ok()) GTEST_SKIP() << "no CUDA device: " << device.status().message();
    if (!device->kernels.ring) GTEST_SKIP() << "a CUDA device that has the portable kernels alone";
    sms = device->multiprocessors;
  }
  void TearDown() override { force_kernels(kernels_of_environment()); }

  static void use(ForcedKernels forced) {
    force_kernels(forced);
    const auto device = usable_device(0);
    ASSERT_TRUE(device.ok()) << device.status().message();
    const bool fast = forced == ForcedKernels::kNone;
    ASSERT_EQ(active_kernels().ring, fast);
    ASSERT_EQ(active_kernels().clusters, fast);
  }
  // What `run` leaves in `buffers` with the fast kernels and with the portable ones.
  template <class Run>
  static void expect_same(std::vector<std::pair<const DeviceBuffer*, size_t>> words, const Run& run,
                          const std::string& what) {
    std::vector<std::vector<uint32_t>> before, fast;
    for (const auto& [buffer, count] : words) before.push_back(download<uint32_t>(*buffer, count));
    use(ForcedKernels::kNone);
    run();
    for (const auto& [buffer, count] : words) fast.push_back(download<uint32_t>(*buffer, count));
    for (size_t i = 0; i < words.size(); ++i)
      HB_OK(const_cast<DeviceBuffer*>(words[i].first)->upload(before[i].data(), before[i].size() * 4));
    use(ForcedKernels::kPortable);
    run();
    for (size_t i = 0; i < words.size(); ++i) {
      const auto portable = download<uint32_t>(*words[i].first, words[i].second);
      EXPECT_NE(portable, before[i]) << what << ": nothing was written to buffer " << i;
      EXPECT_EQ(std::memcmp(portable.data(), fast[i].data(), portable.size() * 4), 0) << what << ", buffer " << i;
    }
  }

  int sms = 0;
};

std::vector<float> normals(size_t count, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& v : out) v = normal(rng) * std::ldexp(1.0f, static_cast<int>(rng() % 8) - 4);
  return out;
}

// Runs of one step, runs over several panels, and everything between; slots and all.
TEST_F(CudaPortable, LinearsGiveTheSameBits) {
  struct Shape {
    int n, k, sms;
  };
  for (const WeightFormat format : {WeightFormat::kNVFP4, WeightFormat::kMXFP4, WeightFormat::kBF16}) {
    for (const Shape shape : {Shape{256, 1280, sms},
                              {576, 576, sms},
                              {640, 80, sms},
                              {331, 1536, 3},
                              {1024, 712, 1},
                              {4096, 4096, sms},
                              {2000, 264, 5},
                              {640, 1280, sms},
                              {1152, 2176, sms}}) {
      const auto linear = make_random_linear(format, shape.n, shape.k, shape.sms, 5);
      ASSERT_TRUE(linear.ok()) << linear.status().message();
      const Linear& v = linear->view;
      for (const int rows : {1, 2, 4, 7, 16}) {
        const auto x = normals(static_cast<size_t>(rows * shape.k), 9);
        const Rounded rounded = round_rows(x, rows, v, v.fp4 ? RowMode::kA16 : RowMode::kBf16Rows, 0.0f);
        const DeviceBuffer slots = device_bytes(slot_floats(v, rows) * 4, /*poison=*/true);
        expect_same(
            {{&slots, slot_floats(v, rows)}},
            [&] { HB_OK(run_linear(v, rows, rounded.x.as<void>(), slots.as<float>(), {})); },
            std::to_string(shape.n) + " x " + std::to_string(shape.k) + " on " + std::to_string(shape.sms) +
                " multiprocessors, " + std::to_string(rows) + " rows, format " +
                std::to_string(static_cast<int>(format)));
      }
    }
  }
}

// A linear's own choice of kernel, as a table makes it, changes nothing.
TEST_F(CudaPortable, ATableChangesNoBit) {
  LinearTable table;
  table.add({640, 1280, 1, {9.0, 1.0}});
  use_linear_table(table);
  const auto by_table = make_random_linear(WeightFormat::kNVFP4, 640, 1280, sms, 5);
  use_linear_table({});
  const auto by_rule = make_random_linear(WeightFormat::kNVFP4, 640, 1280, sms, 5);
  ASSERT_TRUE(by_table.ok()) << by_table.status().message();
  ASSERT_TRUE(by_rule.ok()) << by_rule.status().message();
  EXPECT_EQ(by_table->view.kernels[0], LinearKernel::kStages);
  EXPECT_EQ(by_table->view.kernels[1], LinearKernel::kRing);  // not measured
  EXPECT_EQ(by_rule->view.kernels[0], LinearKernel::kRing);
  const Rounded x = round_rows(normals(1280, 3), 1, by_rule->view, RowMode::kA16, 0.0f);
  const auto a = run(*by_table, x, 1).y, b = run(*by_rule, x, 1).y;
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * 4), 0);
}

TEST_F(CudaPortable, MeasuresEveryKernel) {
  const auto times = measure_linear(6144, 4096, sms);
  ASSERT_TRUE(times.ok()) << times.status().message();
  ASSERT_EQ(times->size(), 5u);
  for (const LinearTimes& t : *times)
    for (const double us : t.us) EXPECT_TRUE(us > 0.5 && us < 1e4) << us;
}

struct Rounding {
  RowMode mode;
  float alpha;
};
constexpr Rounding kRoundings[] = {{RowMode::kA16, 0.0f},  {RowMode::kA8, 0.0f},      {RowMode::kA8, 0.01f},
                                   {RowMode::kA4, 0.0f},   {RowMode::kA4, 0.01f},     {RowMode::kMxA8, 0.0f},
                                   {RowMode::kMxA4, 0.0f}, {RowMode::kBf16Rows, 0.0f}};

TEST_F(CudaPortable, RowOperationsGiveTheSameBits) {
  constexpr int kRows = 5, kColumns = 8;
  for (const int k : {80, 576, 4096, 12288, 25600}) {
    const auto width = static_cast<size_t>(k);
    const DeviceBuffer y = upload(normals(kColumns * 2 * width, 1)), weight = upload(normals(width, 2));
    const DeviceBuffer positions = upload(std::vector<int32_t>{3, -1, 5, 0, 9, -1, -1, -1});
    const DeviceBuffer residual = upload(normals(kMaxRows * width, 4));
    SlotView in;
    in.partial = y.as<float>();
    in.rows = 2 * k;
    in.columns = kColumns;
    for (const Rounding& r : kRoundings) {
      for (const bool prompt : {false, true}) {
        const size_t bytes = (width + kStepK) / kStepK * kStepK * 2 * (prompt ? 64 : kColumns);
        const std::string what = "k " + std::to_string(k) + ", mode " + std::to_string(static_cast<int>(r.mode)) +
                                 ", alpha " + std::to_string(r.alpha) + (prompt ? ", prompt" : "");
        // With buffers of its own, poisoned, for each operation.
        const auto same = [&](const std::string& name, const auto& operation, const DeviceBuffer* more) {
          const DeviceBuffer x = device_bytes(bytes, true), scales = device_bytes(kMaxRows * 4, true);
          std::vector<std::pair<const DeviceBuffer*, size_t>> out = {{&x, bytes / 4}};
          if (r.mode != RowMode::kBf16Rows) out.push_back({&scales, kMaxRows});
          if (more != nullptr) out.push_back({more, kMaxRows * width});
          const RowOutput to{r.mode, r.alpha, x.as<void>(), scales.as<float>(),
                             prompt && r.mode != RowMode::kBf16Rows ? 64 : 0};
          expect_same(
              out, [&] { HB_OK(operation(to)); }, name + ", " + what);
        };
        same(
            "round_rows",
            [&](const RowOutput& to) {
              return cuda::round_rows({in, k, to}, kRows, {});
            },
            nullptr);
        same(
            "silu_rows",
            [&](const RowOutput& to) {
              return silu_rows({in, positions.as<int32_t>(), k, to}, kRows, {});
            },
            nullptr);
        NormRows norm;
        norm.y = in;
        norm.positions = positions.as<int32_t>();
        norm.residual = residual.as<float>();
        norm.weight = weight.as<float>();
        norm.k = k;
        for (const bool keep : {true, false}) {
          norm.keep = keep;
          same(
              keep ? "norm_rows" : "norm_rows that keeps nothing",
              [&](const RowOutput& to) {
                norm.out = to;
                return norm_rows(norm, kRows, {});
              },
              keep ? &residual : nullptr);
        }
      }
    }
  }
}

TEST_F(CudaPortable, MergeGivesTheSameBits) {
  constexpr int kHeads = 12, kDim = 64, kRows = 2;
  const DeviceBuffer parts = upload(normals(kRows * kHeads * kMaxSplits * kDim, 1));
  auto stats_of = normals(kRows * kHeads * kMaxSplits * 2, 2);
  for (size_t i = 1; i < stats_of.size(); i += 2) stats_of[i] = 1.0f + std::abs(stats_of[i]);
  const DeviceBuffer stats = upload(stats_of), positions = upload(std::vector<int32_t>{1500, 70});
  for (const Rounding& r : kRoundings) {
    const DeviceBuffer x = device_bytes(kHeads * kDim * 2 * kRows + 2048, true),
                       scales = device_bytes(kMaxRows * 4, true);
    const MergeRows args{parts.as<float>(),
                         stats.as<float>(),
                         positions.as<int32_t>(),
                         kHeads,
                         kDim,
                         {r.mode, r.alpha, x.as<void>(), scales.as<float>()}};
    expect_same(
        {{&x, kHeads * kDim * kRows / 2}}, [&] { HB_OK(merge_rows(args, kRows, {})); },
        "mode " + std::to_string(static_cast<int>(r.mode)));
  }
}

TEST_F(CudaPortable, DrawsGiveTheSameBits) {
  constexpr int kRows = 6;
  for (const int vocab : {1031, 32000, 151936}) {
    const DeviceBuffer logits = upload(normals(static_cast<size_t>(8 * vocab), 3));
    std::vector<DrawRule> rules(kRows);
    for (int i = 0; i < kRows; ++i) {
      rules[static_cast<size_t>(i)].temperature = i == 0 ? 0.0f : 0.7f * static_cast<float>(i);
      rules[static_cast<size_t>(i)].min_p = i == 2 ? 0.05f : 0.0f;
      rules[static_cast<size_t>(i)].seed = static_cast<uint64_t>(77 + i);
      rules[static_cast<size_t>(i)].wants_entropy = i % 2 == 0;
    }
    rules[5].by_entropy = true;
    const DeviceBuffer drules = upload(rules), tokens = upload(std::vector<int32_t>(kMaxRows, 0)),
                       positions = upload(std::vector<int32_t>{4, 9, 1, 0, 30, 8});
    const DeviceBuffer drawn = device_bytes(kMaxRows * sizeof(Drawn), true),
                       plain = device_bytes(static_cast<size_t>(kRows * vocab) * 4, true);
    DrawRows args;
    args.logits.partial = logits.as<float>();
    args.logits.rows = vocab;
    args.logits.columns = 8;
    args.vocab = vocab;
    args.rules = drules.as<DrawRule>();
    args.tokens = tokens.as<int32_t>();
    args.positions = positions.as<int32_t>();
    args.drawn = drawn.as<Drawn>();
    args.plain = plain.as<float>();
    expect_same(
        {{&drawn, kRows * sizeof(Drawn) / 4}, {&plain, static_cast<size_t>(kRows * vocab)}},
        [&] { HB_OK(draw_rows(args, kRows, {})); }, "vocabulary of " + std::to_string(vocab));
  }
}

}  // namespace
}  // namespace halfbyte::cuda::testing
