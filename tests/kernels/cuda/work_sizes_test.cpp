// The sizes that are computed from shapes alone are those of the kernels. Host functions of a build with CUDA: no device.
#include "kernels/cuda/work_sizes.h"

#include <gtest/gtest.h>

#include "kernels/cuda/ops.h"

namespace halfbyte::cuda {
namespace {

// As fp4_storage and bf16_storage make it.
Linear linear_of(const LinearSize& size) {
  Linear out;
  out.fp4 = size.fp4;
  out.n = static_cast<int>(size.n);
  out.k = static_cast<int>(size.k);
  out.rows = static_cast<int>(size.rows());
  out.k_steps = static_cast<int>(size.k_steps());
  return out;
}

TEST(CudaWorkSizes, AreTheKernels) {
  for (const bool fp4 : {true, false}) {
    for (const int64_t n : {8, 320, 712, 1031, 6144, 51200, 152064}) {
      for (const int64_t k : {64, 320, 712, 4096, 25600, 32768}) {
        const LinearSize size{fp4, n, k};
        const Linear linear = linear_of(size);
        for (int rows = 1; rows <= kMaxRows; ++rows) {
          EXPECT_EQ(x_bytes(size, rows), x_bytes(linear, rows)) << fp4 << " " << n << " x " << k << ", " << rows;
          EXPECT_EQ(slot_floats(size, rows), slot_floats(linear, rows));
        }
        for (const int rows : {1, 64, 65, 512, 1000, 4096}) {
          EXPECT_EQ(prompt_x_bytes(size, rows), prompt_x_bytes(linear, rows));
          EXPECT_EQ(prompt_y_floats(size, rows), prompt_y_floats(linear, rows));
        }
      }
    }
  }
  for (const HeadSize& h : {HeadSize{32, 8, 128}, HeadSize{6, 2, 64}, HeadSize{64, 8, 128}, HeadSize{9, 3, 64}})
    for (const int rows : {1, 16, 100, 512, 4096})
      EXPECT_EQ(prompt_query_floats(h, rows),
                prompt_query_floats(static_cast<int>(h.heads), static_cast<int>(h.kv_heads),
                                    static_cast<int>(h.head_dim), rows));
}

}  // namespace
}  // namespace halfbyte::cuda
