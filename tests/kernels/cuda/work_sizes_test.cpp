// The sizes that are computed from shapes hold what the layouts put there. Plain C++: no device.
#include "kernels/cuda/work_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace halfbyte::cuda {
namespace {

constexpr int64_t kOutputs[] = {8, 320, 712, 1031, 6144, 51200, 152064};
constexpr int64_t kInputs[] = {64, 320, 712, 4096, 25600, 32768};

std::string text(const LinearSize& l) {
  return (l.fp4 ? "fp4 " : "bf16 ") + std::to_string(l.n) + " x " + std::to_string(l.k);
}

// Steps lie [place in the share][thread block], so the last one of the longest share ends the weights.
TEST(CudaWorkSizes, HoldTheStepsOfEveryThreadBlock) {
  for (const int64_t n : kOutputs) {
    for (const int64_t k : kInputs) {
      for (const int multiprocessors : {1, 7, 78, 132}) {
        const LinearSize l{true, n, k};
        const int runs = linear_runs(l, multiprocessors), steps = static_cast<int>(l.k_steps());
        const int total = static_cast<int>(l.rows() / kPanelRows) * steps;
        const Split split = Split::of(total, runs);
        EXPECT_GE(runs, 1);
        EXPECT_LE(runs, multiprocessors);
        EXPECT_LE(split.slots(steps), kMaxSlots) << text(l) << " on " << multiprocessors;
        size_t end = 0;
        for (int run = 0; run < runs; ++run) {
          const auto place = static_cast<size_t>((split.begin(run + 1) - split.begin(run) - 1) * runs + run);
          end = std::max(end, (place + 1) * kPanelStepBytes);
        }
        EXPECT_GE(packed_bytes(l, multiprocessors), end) << text(l);
        EXPECT_LT(packed_bytes(l, multiprocessors), end + static_cast<size_t>(runs) * kPanelStepBytes) << text(l);
        const LinearSize plain{false, n, k};
        EXPECT_GE(packed_bytes(plain, multiprocessors), static_cast<size_t>(n * k) * 2) << text(plain);
        EXPECT_LE(linear_runs(plain, multiprocessors), multiprocessors);
      }
    }
  }
}

TEST(CudaWorkSizes, HoldTheLastValueOfARow) {
  for (const int64_t k : kInputs) {
    const LinearSize fp4{true, 320, k}, bf16{false, 320, k};
    for (const int columns : {1, 2, 4, 8, 16}) {
      const auto last = static_cast<size_t>((k - 1) / kStepK) * static_cast<size_t>(x_chunk_bytes(columns)) +
                        static_cast<size_t>(x_offset(columns, columns - 1, static_cast<int>((k - 1) % kStepK)));
      EXPECT_LE(last + 2, x_bytes(fp4, columns)) << text(fp4) << ", " << columns;
      EXPECT_EQ(x_bytes(bf16, columns), static_cast<size_t>(columns * k) * 2);
    }
    for (const int rows : {1, 64, 65, 512, 1000, 4096}) {
      const int padded = padded_prompt_rows(rows);
      for (const LinearSize& l : {fp4, bf16}) {
        const size_t end = prompt_offset(padded, padded - 1, static_cast<int>(k - 4)) + 8;
        EXPECT_LE(end, prompt_x_bytes(l, rows)) << text(l) << ", " << rows;
      }
    }
  }
}

TEST(CudaWorkSizes, SiluIsFusedForBf16ValuesOfTheSameFamily) {
  const LinearSize fp4{true, 768, 576}, bf16{false, 768, 576};
  EXPECT_TRUE(fuses_prompt_silu(fp4, 384, true, true, true));
  EXPECT_TRUE(fuses_prompt_silu(bf16, 384, false, true, true));
  EXPECT_FALSE(fuses_prompt_silu(bf16, 384, true, true, true)) << "another family";
  EXPECT_FALSE(fuses_prompt_silu(fp4, 384, true, false, true)) << "rounded to fewer bits";
  EXPECT_FALSE(fuses_prompt_silu(fp4, 384, true, true, false)) << "no wgmma";
  EXPECT_FALSE(fuses_prompt_silu(fp4, 256, true, true, true)) << "not gate and up";
  EXPECT_FALSE(fuses_prompt_silu({true, 640, 576}, 320, true, true, true)) << "no whole steps of the next linear";
}

}  // namespace
}  // namespace halfbyte::cuda
