// What linear_fp4.cu and linear_bf16.cu give to linear.cpp; private to this folder.
#pragma once

#include <vector>

#include "kernels/cuda/ops.h"

namespace halfbyte::cuda {

Result<LinearStorage> fp4_storage(int64_t n, int64_t k, int multiprocessors);
Status pack_fp4(LinearStorage& storage, const std::vector<LinearPart>& parts);
Status randomise_fp4(LinearStorage& storage, WeightFormat format, uint64_t seed);
Status run_fp4(const Linear& linear, int rows, const void* x, float* partial, Launch launch);
// tile: 0 lets it choose.
Status run_fp4_prompt(const Linear& linear, int rows, const void* x, float* y, Launch launch, int tile);
size_t fp4_x_bytes(const Linear& linear, int rows);

Result<LinearStorage> bf16_storage(int64_t n, int64_t k, int multiprocessors);
Status pack_bf16(LinearStorage& storage, const DeviceBuffer& rows);
Status run_bf16(const Linear& linear, int rows, const void* x, float* partial, Launch launch);

}  // namespace halfbyte::cuda
