// Steps 1 and 2: weights straight from global memory to registers, kDepth steps ahead; x^ through L1; warps take k
// steps in turn. Step 1 decodes WordCode::kShifted (11 instructions for 8 weights), step 2 WordCode::kMixed (8).
//
// Moves   N K 0.5625 bytes of weights once; x^ of all K in each thread block through L1; writes 2 x N x M FP32.
// Layout  steps in [row tile][k step] order; x^ in fragment order: [k step][lane][column group][4 values].
// Order   of sums: 8 partial sums by block index mod 8 in a warp, then the warps of a run, then the two parts of a cut
// tile.
#pragma once

#include "linear_ring.cuh"
#include "ptx.cuh"
#include "step_layout.h"

namespace halfbyte::ladder {

template <int kTokens_, int kWarps_, int kDepth_, int kMinBlocks_, WordCode kCode_>
struct RegistersConfig {
  static constexpr int kTokens = kTokens_;
  static constexpr int kWarps = kWarps_;
  static constexpr int kDepth = kDepth_;
  static constexpr int kMinBlocks = kMinBlocks_;
  static constexpr WordCode kCode = kCode_;
  static constexpr int kOutputs = kTileRows * kTokens;
  static_assert(kTokens == 1 || kTokens == 2 || kTokens == 4 || kTokens == 8, "M must be 1, 2, 4 or 8");
};

__device__ __forceinline__ void decode_shifted(uint32_t (&a)[4], uint32_t w) {
  a[0] = w & kPairMask;
  a[1] = (w << 3) & kPairMask;
  a[2] = ((w << 1) & 0x80008000u) | ((w << 6) & 0x0E000E00u);
  a[3] = ((w << 2) & 0x80008000u) | ((w << 9) & 0x0E000E00u);
}

// y0, y1: [row][M]; y1 takes the tile that the run before began.
template <class Config>
__global__ void __launch_bounds__(Config::kWarps * 32, Config::kMinBlocks)
    linear_registers(const uint8_t* __restrict__ weights, const uint4* __restrict__ x, float* __restrict__ y0,
                     float* __restrict__ y1, Split split, int k_steps) {
  extern __shared__ float part[];  // [tile of the run][warp][16 x M]
  constexpr int W = Config::kWarps;
  constexpr int D = Config::kDepth;
  constexpr int M = Config::kTokens;
  constexpr int kOutputs = Config::kOutputs;
  constexpr int kScaleWords = M == 1 ? 1 : 4;
  constexpr int kPerTile = 8 / M;  // blocks side by side in the columns of an accumulator tile
  const int lane = threadIdx.x & 31;
  const int warp = threadIdx.x >> 5;
  const int g = lane >> 2;
  const int t = lane & 3;
  const int begin = split.begin(blockIdx.x);
  const int end = split.begin(blockIdx.x + 1);
  const int n = (end - begin - warp + W - 1) / W;
  const uint8_t* p = weights + static_cast<size_t>(begin + warp) * kStepBytes;
  uint4 q0[D], q1[D];
  uint32_t scales[D][kScaleWords];
  auto load = [&](int d, int i) {
    const uint8_t* a = p + static_cast<size_t>(i) * (W * kStepBytes);
    q0[d] = ptx::ld_stream_v4(a + lane * 16);
    q1[d] = ptx::ld_stream_v4(a + 512 + lane * 16);
    if constexpr (M == 1) {
      scales[d][0] = ptx::ld_stream(a + 1024 + lane * 4);
    } else {
      const uint4 v = ptx::ld_stream_v4(a + 1024 + g * 16);
      scales[d][0] = v.x, scales[d][1] = v.y, scales[d][2] = v.z, scales[d][3] = v.w;
    }
  };
#pragma unroll
  for (int d = 0; d < D; ++d) {
    if (d < n) load(d, d);
  }
  uint32_t xv[D][2 * M];
  int kx = (begin + warp) % k_steps;
  auto load_x = [&](int d) {
    if constexpr (M == 1) {
      const uint2 v = __ldg(reinterpret_cast<const uint2*>(x) + static_cast<size_t>(kx) * 32 + lane);
      xv[d][0] = v.x, xv[d][1] = v.y;
    } else {
      const uint4* xp = x + (static_cast<size_t>(kx) * 32 + lane) * (M / 2);
#pragma unroll
      for (int z = 0; z < M / 2; ++z) {
        const uint4 v = __ldg(xp + z);
        xv[d][4 * z] = v.x, xv[d][4 * z + 1] = v.y, xv[d][4 * z + 2] = v.z, xv[d][4 * z + 3] = v.w;
      }
    }
  };
#pragma unroll
  for (int d = 0; d < D; ++d) {
    if (d < n) load_x(d);
    if (d < D - 1) {
      kx += W;
      if (kx >= k_steps) kx -= k_steps;
    }
  }
  const int tile0 = begin / k_steps;
  const int tiles = (end - 1) / k_steps - tile0 + 1;
  for (int i = threadIdx.x; i < tiles * W * kOutputs; i += W * 32) part[i] = 0;
  __syncthreads();
  int tile = (begin + warp) / k_steps - tile0;
  int k = (begin + warp) % k_steps;
  float acc[M][4] = {};
  uint32_t mask[8];
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    mask[j] = g / M == j ? ~0u : 0u;
    if (M < 8) asm volatile("" : "+r"(mask[j]));
  }
  const uint32_t factor = ((M == 2 ? t & 1 : t >> 1) != 0) ? 1u << 12 : 1u << 20;
  auto flush = [&]() {
    if constexpr (M == 1) {
      float u = acc[0][0] + acc[0][1], v = acc[0][2] + acc[0][3];
      u += __shfl_xor_sync(~0u, u, 1), v += __shfl_xor_sync(~0u, v, 1);
      u += __shfl_xor_sync(~0u, u, 2), v += __shfl_xor_sync(~0u, v, 2);
      if (t == 0) {
        part[(tile * W + warp) * kOutputs + g] = u;
        part[(tile * W + warp) * kOutputs + g + 8] = v;
      }
    } else {
      float v[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float r[M];
#pragma unroll
        for (int z = 0; z < M; ++z) {
          r[z] = acc[z][e];
          if (M == 2) r[z] += __shfl_xor_sync(~0u, r[z], 1);
          if (M <= 4) r[z] += __shfl_xor_sync(~0u, r[z], 2);
        }
        v[e] = r[0] + r[1];
        if constexpr (M >= 4) v[e] = v[e] + (r[2] + r[3]);
        if constexpr (M >= 8) v[e] = v[e] + ((r[4] + r[5]) + (r[6] + r[7]));
      }
      const int column = M == 2 ? 0 : M == 4 ? t & 1 : t;
      if (M == 2 ? t == 0 : M == 4 ? t < 2 : true) {
        float* q = part + (tile * W + warp) * kOutputs;
        q[g * M + 2 * column] = v[0], q[g * M + 2 * column + 1] = v[1];
        q[(g + 8) * M + 2 * column] = v[2], q[(g + 8) * M + 2 * column + 1] = v[3];
      }
    }
#pragma unroll
    for (int z = 0; z < M; ++z) {
      for (int e = 0; e < 4; ++e) acc[z][e] = 0;
    }
  };
  auto step = [&](int d, int i, bool more) {
    uint32_t s[kScaleWords];
#pragma unroll
    for (int z = 0; z < kScaleWords; ++z) s[z] = scales[d][z];
#pragma unroll
    for (int group = 0; group < M; ++group) {
      float c[4];
#pragma unroll
      for (int j = 0; j < kPerTile; ++j) {
        const int jj = group * kPerTile + j;
        const uint4& q = jj < 4 ? q0[d] : q1[d];
        const uint32_t w = (jj & 3) == 0 ? q.x : (jj & 3) == 1 ? q.y : (jj & 3) == 2 ? q.z : q.w;
        uint32_t a[4];
        if constexpr (Config::kCode == WordCode::kMixed) {
          decode_mixed(a, w);
        } else {
          decode_shifted(a, w);
        }
        uint32_t b0 = xv[d][2 * group], b1 = xv[d][2 * group + 1];
        if (M < 8) b0 &= mask[j], b1 &= mask[j];
        if (j == 0) {
          ptx::mma_m16n8k16_from_zero(c, a, b0, b1);
        } else {
          ptx::mma_m16n8k16(c, a, b0, b1);
        }
      }
      float f0, f1, f2, f3;
      if constexpr (M == 1) {
        f0 = scale_of<0>(s[0]), f1 = scale_of<1>(s[0]), f2 = scale_of<2>(s[0]), f3 = scale_of<3>(s[0]);
      } else if constexpr (M == 8) {
        const uint32_t w = s[group >> 1];
        f0 = f1 = (group & 1) == 0 ? scale_of<0>(w) : scale_of<1>(w);
        f2 = f3 = (group & 1) == 0 ? scale_of<2>(w) : scale_of<3>(w);
      } else {
        const uint32_t w = M == 4 ? s[group] : (t >> 1) == 0 ? s[2 * group] : s[2 * group + 1];
        f0 = f1 = __uint_as_float(ptx::and_or(w * factor, kScaleMask, kScaleBias));
        f2 = f3 = __uint_as_float(ptx::and_or((w >> 16) * factor, kScaleMask, kScaleBias));
      }
      acc[group][0] = fmaf(c[0], f0, acc[group][0]), acc[group][1] = fmaf(c[1], f1, acc[group][1]);
      acc[group][2] = fmaf(c[2], f2, acc[group][2]), acc[group][3] = fmaf(c[3], f3, acc[group][3]);
    }
    if (more) load(d, i + D);
    kx += W;
    if (kx >= k_steps) kx -= k_steps;
    if (more) load_x(d);
    k += W;
    if (k >= k_steps) {
      flush();
      k -= k_steps;
      ++tile;
    }
  };
  int i = 0;
  for (; i + D <= n; i += D) {
#pragma unroll
    for (int d = 0; d < D; ++d) step(d, i + d, i + d + D < n);
  }
#pragma unroll
  for (int d = 0; d < D - 1; ++d) {
    if (i + d < n) step(d, i + d, false);
  }
  if (tile < tiles) flush();
  __syncthreads();
  for (int o = threadIdx.x; o < tiles * kOutputs; o += W * 32) {
    float v = 0;
#pragma unroll
    for (int q = 0; q < W; ++q) v += part[((o / kOutputs) * W + q) * kOutputs + (o % kOutputs)];
    const int out_tile = tile0 + o / kOutputs;
    (out_tile * k_steps >= begin ? y0 : y1)[static_cast<size_t>(out_tile) * kOutputs + (o % kOutputs)] = v * kUnscale;
  }
}

}  // namespace halfbyte::ladder
