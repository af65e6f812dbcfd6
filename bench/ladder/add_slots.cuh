// The reader's part of a linear when nothing fuses it: adds the slots of every output in ascending order.
//
// Moves   slots x M x N FP32 read (2 to 6 slots, from L2), M x N FP32 written.
#pragma once

#include "ptx.cuh"
#include "step_layout.h"

namespace halfbyte::ladder {

// partial: [slot][M][rows]; y: [M][rows]; a thread a row, a grid row a column.
__global__ void add_slots(const float* __restrict__ partial, float* __restrict__ y, Split split, int k_steps, int rows,
                          float scale) {
  ptx::griddepcontrol_launch_dependents();
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  const int first_step = row / kPanelRows * k_steps;
  const int slots = split.owner(first_step + k_steps - 1) - split.owner(first_step) + 1;
  const float* at = partial + static_cast<size_t>(blockIdx.y) * rows + row;
  const size_t stride = static_cast<size_t>(gridDim.y) * rows;
  ptx::griddepcontrol_wait();
  float sum = at[0];
#pragma unroll 4
  for (int s = 1; s < slots; ++s) sum += at[s * stride];
  y[static_cast<size_t>(blockIdx.y) * rows + row] = sum * scale;
}

}  // namespace halfbyte::ladder
