// The floor: kernels that only read the same bytes, by loads to registers and by bulk copies.
#pragma once

#include "ptx.cuh"

namespace halfbyte::ladder {

// count: 16-byte words. The sum keeps the loads alive; out is written only if it hits one value.
__global__ void read_registers(const uint4* __restrict__ p, size_t count, uint32_t* out) {
  ptx::griddepcontrol_launch_dependents();  // no effect without the launch attribute
  size_t i = blockIdx.x * static_cast<size_t>(blockDim.x) + threadIdx.x;
  const size_t stride = static_cast<size_t>(gridDim.x) * blockDim.x;
  uint32_t a = 0;
  for (; i + 7 * stride < count; i += 8 * stride) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = ptx::ld_stream_v4(p + i + j * stride);
#pragma unroll
    for (int j = 0; j < 8; ++j) a ^= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < count; i += stride) {
    const uint4 v = ptx::ld_stream_v4(p + i);
    a ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  ptx::griddepcontrol_wait();
  if (a == 0x12345678u) out[0] = a;
}

}  // namespace halfbyte::ladder
