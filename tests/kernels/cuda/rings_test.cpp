// Rings of shared memory that go round: thread blocks with several times the work that their rings hold. The shapes are small,
// so that compute-sanitizer's racecheck gets through them (docs/cuda.md).
#include <cstring>

#include "formats/bf16.h"
#include "kernels/cuda/cuda_support.h"
#include "kernels/cuda/prompt_layout.h"

namespace halfbyte::cuda::testing {
namespace {

constexpr int kBlocks = 2;      // thread blocks of a linear
constexpr int kHeldSteps = 14;  // k steps in the two rings of linear_fp4

#define HB_NEED_RINGS() \
  HB_NEED_DEVICE();     \
  if (!active_kernels().ring) GTEST_SKIP() << "a CUDA device without rings, or the portable kernels are forced"

LinearStorage random_linear(WeightFormat format, int n, int k) {
  auto made = make_random_linear(format, n, k, kBlocks, 5);
  if (!made.ok()) throw std::runtime_error(made.status().message());
  return std::move(made).value();
}

bool goes_round(const Linear& v) {
  return v.runs == kBlocks && v.rows / kPanelRows * v.k_steps > kHeldSteps * kBlocks;
}

// Against the kernel without rings.
TEST(CudaRings, DecodeLinears) {
  HB_NEED_RINGS();
  constexpr int kN = 640, kK = 1280;
  for (const WeightFormat format : {WeightFormat::kNVFP4, WeightFormat::kMXFP4}) {
    LinearStorage linear = random_linear(format, kN, kK);
    ASSERT_TRUE(goes_round(linear.view));
    for (const int rows : {1, 2, 4, 8, 16}) {
      const Rounded x = round_rows(spread_normals(int64_t{rows} * kK, 9), rows, linear.view, RowMode::kA16, 0.0f);
      linear.view.kernels.fill(LinearKernel::kRing);
      const auto ring = run(linear, x, rows).slots;
      linear.view.kernels.fill(LinearKernel::kStages);
      const auto stages = run(linear, x, rows).slots;
      EXPECT_EQ(std::memcmp(ring.data(), stages.data(), ring.size() * 4), 0) << rows << " rows";
    }
  }
}

// Against a thread block a tile of outputs, which has less work than its ring holds.
TEST(CudaRings, DecodeLinearsInBf16) {
  HB_NEED_RINGS();
  constexpr int kN = 320, kK = 2048;
  std::vector<uint16_t> weights;
  for (const float v : spread_normals(int64_t{kN} * kK, 7)) weights.push_back(BF16::encode(v));
  const LinearPart part{WeightFormat::kBF16, kN, kK, weights.data(), nullptr, 1.0f, nullptr};
  const auto few = make_linear({part}, kBlocks), many = make_linear({part}, sms);
  ASSERT_TRUE(few.ok()) << few.status().message();
  ASSERT_TRUE(many.ok()) << many.status().message();
  ASSERT_EQ(few->view.runs, kBlocks);
  ASSERT_GT(many->view.runs, 10);
  for (const int rows : {1, 2, 4, 8, 16}) {
    const Rounded x = round_rows(spread_normals(int64_t{rows} * kK, 9), rows, few->view, RowMode::kBf16Rows, 0.0f);
    EXPECT_EQ(run(*few, x, rows).y, run(*many, x, rows).y) << rows << " rows";
  }
}

enum class Operation { kMerge, kNorm, kSilu };

// Linears that make x^ for themselves, against the two kernels.
TEST(CudaRings, DecodeLinearsWithTheirOwnInput) {
  HB_NEED_RINGS();
  constexpr int kN = 640, kHeads = 8, kDim = 128, kK = kHeads * kDim;
  const LinearStorage linear = random_linear(WeightFormat::kNVFP4, kN, kK);
  const Linear& v = linear.view;
  ASSERT_EQ(v.kernels[0], LinearKernel::kRing);
  ASSERT_TRUE(goes_round(v));
  const auto parts = spread_normals(int64_t{kHeads} * kMaxSplits * kDim, 4);
  const DeviceBuffer dparts = upload(parts), dstats = upload(std::vector<float>(kHeads * kMaxSplits * 2, 1.0f));
  const DeviceBuffer positions = upload(std::vector<int32_t>(kMaxRows, 300));
  const DeviceBuffer y = upload(spread_normals(2 * kK, 5)), weight = upload(spread_normals(kK, 6));
  for (const RowMode mode : {RowMode::kA16, RowMode::kA8}) {
    for (const Operation what : {Operation::kMerge, Operation::kNorm, Operation::kSilu}) {
      // Of a row that no amax decides about, x^ is made by a kernel of its own: the same two on both sides.
      if (what == Operation::kSilu && mode == RowMode::kA16) continue;
      const size_t floats = slot_floats(v, 1);
      const auto slots = [&](bool fused) {
        const DeviceBuffer x = device_bytes(x_bytes(v, 1)), scales = device_bytes(kMaxRows * 4),
                           residual = upload(spread_normals(kK, 8)), out = device_bytes(floats * 4, /*poison=*/true);
        const RowOutput to{mode, 0.0f, x.as<void>(), scales.as<float>()};
        SlotView in;
        in.partial = y.as<float>();
        in.rows = 2 * kK;
        in.columns = 1;
        const MergeRows merge{dparts.as<float>(), dstats.as<float>(), positions.as<int32_t>(), kHeads, kDim, to};
        const SiluRows silu{in, positions.as<int32_t>(), kK, to};
        NormRows norm;
        norm.y = in;
        norm.positions = positions.as<int32_t>();
        norm.residual = residual.as<float>();
        norm.weight = weight.as<float>();
        norm.k = kK;
        norm.out = to;
        float* const to_slots = out.as<float>();
        Status status;
        switch (what) {
          case Operation::kMerge:
            status = fused ? run_merge_linear(merge, v, 1, to_slots, {}) : merge_rows(merge, 1, {});
            break;
          case Operation::kNorm:
            status = fused ? run_norm_linear(norm, v, 1, to_slots, {}) : norm_rows(norm, 1, {});
            break;
          case Operation::kSilu:
            status = fused ? run_silu_linear(silu, v, 1, to_slots, {}) : silu_rows(silu, 1, {});
            break;
        }
        if (status.ok() && !fused) status = run_linear(v, 1, x.as<void>(), to_slots, {});
        EXPECT_TRUE(status.ok()) << status.message();
        return download<uint32_t>(out, floats);
      };
      EXPECT_EQ(slots(true), slots(false))
          << "operation " << static_cast<int>(what) << ", mode " << static_cast<int>(mode);
    }
  }
}

// x^ of a prompt's rows, as any row operation might have left it.
DeviceBuffer random_prompt_x(const Linear& v, int rows) {
  const size_t bytes = prompt_x_bytes(v, rows);
  DeviceBuffer x = device_bytes(bytes);
  const Status s = fill_random_bf16(x.as<void>(), bytes / 2, v.fp4 ? 0x1p50f : 1.0f, 3, {});
  if (!s.ok()) throw std::runtime_error(s.message());
  return x;
}

// One cluster takes every tile; the numbers are those of any tile.
TEST(CudaRings, PromptLinears) {
  HB_NEED_RINGS();
  if (!active_kernels().wgmma) GTEST_SKIP() << "no wgmma: prompts have no rings";
  constexpr int kRows = 256;
  for (const WeightFormat format : {WeightFormat::kNVFP4, WeightFormat::kBF16}) {
    const LinearStorage linear = random_linear(format, 384, 1280);
    const Linear& v = linear.view;
    const DeviceBuffer x = random_prompt_x(v, kRows);
    std::vector<uint32_t> first;
    for (const int tile : {64, 128, 256}) {
      const DeviceBuffer y = device_bytes(prompt_y_floats(v, kRows) * 4, /*poison=*/true);
      HB_OK(run_prompt_linear(v, kRows, x.as<void>(), y.as<float>(), {}, tile));
      const auto got = download<uint32_t>(y, prompt_y_floats(v, kRows));
      if (first.empty()) first = got;
      EXPECT_EQ(got, first) << "tiles of " << tile;
    }
  }
}

TEST(CudaRings, PromptLinearsWithSilu) {
  HB_NEED_RINGS();
  if (!active_kernels().wgmma) GTEST_SKIP() << "no wgmma: prompts have no rings";
  constexpr int kRows = 256, kOutputs = 256;
  for (const WeightFormat format : {WeightFormat::kNVFP4, WeightFormat::kBF16}) {
    const RowMode mode = format == WeightFormat::kBF16 ? RowMode::kBf16Rows : RowMode::kA16;
    const LinearStorage linear = random_linear(format, 2 * kOutputs, 1280);
    const Linear& v = linear.view;
    ASSERT_TRUE(fuses_prompt_silu(v, kOutputs, mode));
    const DeviceBuffer x = random_prompt_x(v, kRows), scales = upload(std::vector<float>(kRows, 1.0f));
    const size_t bytes = size_t{kOutputs / kPromptK} * kRows * kPromptRowBytes;
    std::vector<uint32_t> first;
    for (const int tile : {64, 128, 256}) {
      const DeviceBuffer out = device_bytes(bytes, /*poison=*/true), out_scales = device_bytes(kRows * 4);
      const RowOutput to{mode, 0.0f, out.as<void>(), out_scales.as<float>(), kRows};
      HB_OK(run_prompt_silu(v, kRows, x.as<void>(), scales.as<float>(), to, {}, tile));
      const auto got = download<uint32_t>(out, bytes / 4);
      if (first.empty()) first = got;
      EXPECT_EQ(got, first) << "tiles of " << tile;
    }
  }
}

}  // namespace
}  // namespace halfbyte::cuda::testing
