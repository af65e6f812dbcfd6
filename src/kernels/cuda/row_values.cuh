// The numbers of row operations, four neighbours at a time: by clusters (rows.cu) or a thread block a row (rows_portable.cu).
#pragma once

#include "base/exp32.h"
#include "kernels/cuda/rounding.cuh"

namespace halfbyte::cuda {

__device__ __forceinline__ void unpack(float4 from, float (&v)[4]) {
  v[0] = from.x;
  v[1] = from.y;
  v[2] = from.z;
  v[3] = from.w;
}

// silu(gate) * up.
__device__ __forceinline__ void silu_times(const float (&gate)[4], const float (&up)[4], float (&v)[4]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float x = gate[i];
    const float e = exp32(x >= 0.0f ? -x : x);
    v[i] = ((x >= 0.0f ? x : x * e) / (1.0f + e)) * up[i];
  }
}

__device__ __forceinline__ void read_embedding(const NormRows& a, int token, int element, float (&v)[4]) {
  const size_t at = static_cast<size_t>(token) * a.k + element;
  if (a.embedding_bf16) {
    const uint2 bits = *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(a.embedding) + at);
    v[0] = __uint_as_float(bits.x << 16);
    v[1] = __uint_as_float(bits.x & 0xFFFF0000u);
    v[2] = __uint_as_float(bits.y << 16);
    v[3] = __uint_as_float(bits.y & 0xFFFF0000u);
  } else {
    unpack(*reinterpret_cast<const float4*>(static_cast<const float*>(a.embedding) + at), v);
  }
}

}  // namespace halfbyte::cuda
