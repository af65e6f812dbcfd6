// What linear_fp4.cu and linear_bf16.cu give to linear.cpp; private to this folder.
#pragma once

#include <vector>

#include "kernels/cuda/ops.h"

namespace halfbyte::cuda {

Result<LinearStorage> fp4_storage(int64_t n, int64_t k, int multiprocessors);
Status pack_fp4(LinearStorage& storage, const std::vector<LinearPart>& parts);
Status randomise_fp4(LinearStorage& storage, WeightFormat format, uint64_t seed);
Status run_ring(const Linear& linear, int rows, const void* x, float* partial, Launch launch);
Status run_stages(const Linear& linear, int rows, const void* x, float* partial, Launch launch);
// The one that runs for so many rows: what the linear was made with, where the device can.
LinearKernel linear_kernel_of(const Linear& linear, int rows);
// tile: 0 lets it choose.
Status run_prompt_wgmma(const Linear& linear, int rows, const void* x, float* y, Launch launch, int tile);
Status run_fp4_prompt_portable(const Linear& linear, int rows, const void* x, float* y, Launch launch, int tile);

Result<LinearStorage> bf16_storage(int64_t n, int64_t k, int multiprocessors);
Status pack_bf16(LinearStorage& storage, const DeviceBuffer& rows);
Status run_bf16(const Linear& linear, int rows, const void* x, float* partial, Launch launch);

// Rows of a thread block's tile for a prompt pass, by its padded rows and the panels of 128 outputs.
int prompt_tile(int padded, int panels, int multiprocessors);

}  // namespace halfbyte::cuda
