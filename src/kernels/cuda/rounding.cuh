// Rounds a row, four neighbours a thread, into the next linear's operand.
//
// Contract (docs/numerics.md 2 and 8): the numbers of the definition, held in BF16 times 2^kXExponent.
//   kA16         BF16 values.
//   kA8, kA4     codes, and codes times block scales; the row's or the tensor's scale is left to the reader (x_scale).
//   kMxA4/A8     codes times block scales.
// All of them are exact up to 2^77; beyond it they are infinite, which ends in an error. Every amax is exact, so nothing
// depends on the order in which threads meet.
//
// A row's warps have 128 neighbours (a k step) each, wherever they run. What the row needs of all of them, their sums of
// squares and maxima, is joined in an order that does not depend on who does it: by the warps themselves, in a cluster, or
// by the linear that reads an unrounded ("open") row.
#pragma once

#include "formats/bf16.h"
#include "formats/fp8.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"
#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prompt_layout.h"
#include "kernels/cuda/step_layout.h"

namespace halfbyte::cuda {

inline constexpr int kMostRowThreads = 1024;
inline constexpr int kValuesPerThread = 4;
inline constexpr int kMostRowSteps = kMaxWidth / kStepK;
static_assert(kStepK == 32 * kValuesPerThread, "a warp has a k step");

// A thread's place in its row.
struct RowPlace {
  int row;      // of the pass
  int element;  // the first of its four
  __device__ __forceinline__ RowPlace(int row, int element) : row(row), element(element) {}
  __device__ __forceinline__ RowPlace()
      : RowPlace(static_cast<int>(blockIdx.y),
                 static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) * kValuesPerThread)) {}
  __device__ __forceinline__ int step() const { return element / kStepK; }  // one for all of a row operation's warp
};

HB_HOST_DEVICE constexpr int row_steps(int k) {
  return (k + kStepK - 1) / kStepK;
}

// --- what a row's k steps know of themselves, and the row ---

struct RowPart {
  float squares;  // sum of squares
  float amax;
};
static_assert(sizeof(RowPart) == kRowPartBytes);

__device__ __forceinline__ float warp_amax(float magnitude) {
  return __uint_as_float(__reduce_max_sync(~0u, __float_as_uint(magnitude)));
}
__device__ __forceinline__ float warp_sum(float v) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v += __shfl_xor_sync(~0u, v, mask);
  return v;
}

// The row's: lane l has parts l, l + 32, ... ascending, then lanes xor 16 .. 1. part_of(step) gives a step's.
template <class PartOf>
__device__ __forceinline__ RowPart join_parts(int steps, PartOf part_of) {
  RowPart row{0.0f, 0.0f};
  for (int step = static_cast<int>(threadIdx.x) % 32; step < steps; step += 32) {
    const RowPart part = part_of(step);
    row.squares += part.squares;
    row.amax = wider_amax(row.amax, part.amax);
  }
  return {warp_sum(row.squares), warp_amax(row.amax)};
}

// Of a cluster's warps: each hands its part to all thread blocks, so that one barrier is enough and none reads a block that
// has ended. Before, all thread blocks must have started (cluster_arrive, cluster_wait). Once in a kernel.
struct RowMeeting {
  RowPart parts[kMostRowSteps];  // written by all thread blocks of the cluster

  __device__ __forceinline__ RowPart join(const RowPlace& at, int k, RowPart mine) {
    const uint32_t lane = threadIdx.x % 32;
    if (at.step() < row_steps(k) && lane < ptx::cluster_blocks())
      ptx::st_cluster_v2(ptx::cluster_address(ptx::shared_address(&parts[at.step()]), lane), mine.squares, mine.amax);
    ptx::cluster_arrive();
    ptx::cluster_wait();
    return join_parts(row_steps(k), [&](int step) { return parts[step]; });
  }
};

__device__ __forceinline__ float amax4(const float (&v)[4]) {
  return wider_amax(wider_amax(wider_amax(magnitude(v[0]), v[1]), v[2]), v[3]);
}
// Of the 4 * kThreads neighbours.
template <int kThreads>
__device__ __forceinline__ float block_amax(const float (&v)[4]) {
  float amax = amax4(v);
#pragma unroll
  for (int mask = 1; mask < kThreads; mask *= 2) amax = wider_amax(amax, __shfl_xor_sync(~0u, amax, mask));
  return amax;
}

// --- arithmetic of the formats, in fewer instructions than their definitions, with the same results ---

inline constexpr float kNotANumber = __builtin_nanf("");

// Quotients by one number. Where neither it nor what it divides comes near the ends of FP32, its inverse and two
// corrections round as a true division does, but for quotients below 2^-40, which are zero in every format.
class Divisor {
 public:
  Divisor() = default;
  __device__ __forceinline__ explicit Divisor(float by) : by_(by) {
    const float estimate = ptx::rcp_approx(by);
    inverse_ = fmaf(estimate, fmaf(-by, estimate, 1.0f), estimate);
  }
  // amax: of v.
  template <int kCount>
  __device__ __forceinline__ void divide(const float (&v)[kCount], float amax, float (&q)[kCount]) const {
    if (!(by_ >= 0x1p-60f && by_ <= 0x1p60f && amax <= 0x1p60f)) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) q[i] = v[i] / by_;
      return;
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      float quotient = v[i] * inverse_;
      quotient = fmaf(fmaf(-by_, quotient, v[i]), inverse_, quotient);
      q[i] = fmaf(fmaf(-by_, quotient, v[i]), inverse_, quotient);
    }
  }

 private:
  float by_, inverse_;
};

// E4M3::decode(E4M3::encode(v)).
template <int kCount>
__device__ __forceinline__ void to_e4m3(float (&v)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; i += 2) {
    const float2 pair = ptx::round_e4m3x2(v[i], kCount > 1 ? v[i + 1 < kCount ? i + 1 : i] : 0.0f);
    v[i] = pair.x;
    if (i + 1 < kCount) v[i + 1] = pair.y;
  }
}

// E2M1::decode(E2M1::encode(v)): adding and taking away 1.5 * 2^23 steps of v's binade rounds to nearest even there.
__device__ __forceinline__ float to_e2m1(float v) {
  const float kept = fminf(fmaxf(v, -E2M1::kMax), E2M1::kMax);
  const uint32_t binade = max(__float_as_uint(kept) & kFloatInfinity, 127u << 23);  // steps of .5 below 2
  const float shifter = __uint_as_float(binade + (22u << 23) + 0x400000u);
  return (kept + shifter) - shifter;
}

// BF16 of what is exact in it.
__device__ __forceinline__ uint2 pack_exact(const float (&v)[4]) {
  return make_uint2(__byte_perm(__float_as_uint(v[0]), __float_as_uint(v[1]), 0x7632),
                    __byte_perm(__float_as_uint(v[2]), __float_as_uint(v[3]), 0x7632));
}
__device__ __forceinline__ uint2 pack_bf16(const float (&v)[4]) {
  return make_uint2(ptx::cvt_bf16x2(v[0], v[1]), ptx::cvt_bf16x2(v[2], v[3]));
}

// A mode whose rounding looks at the whole row first.
HB_HOST_DEVICE constexpr bool needs_row_amax(RowMode mode, float static_alpha) {
  return (mode == RowMode::kA8 || mode == RowMode::kA4) && !(static_alpha > 0.0f);
}

// How a row is rounded, once its amax is known where the mode needs it.
class RowRounding {
 public:
  RowRounding() = default;
  __device__ __forceinline__ RowRounding(const RowOutput& out, float amax) : mode_(out.mode), scale_(1.0f) {
    const bool fixed = out.static_alpha > 0.0f;
    if (mode_ == RowMode::kA8) {
      scale_ = fixed ? out.static_alpha : is_finite(amax) ? FP8Row::scale(amax) : kNotANumber;
      by_ = Divisor(scale_);
    } else if (mode_ == RowMode::kA4) {
      scale_ = fixed ? out.static_alpha : NVFP4::tensor_scale(amax);
      by_ = Divisor(E2M1::kMax * scale_);
    }
  }

  // What its reader multiplies with.
  __device__ __forceinline__ float scale() const { return scale_; }

  // Four neighbours as BF16 times 2^kXExponent. Not for kBf16Rows. Blocks lie in neighbouring lanes: all lanes of a warp
  // call it.
  __device__ __forceinline__ uint2 bits(const float (&v)[4]) const {
    float x[4];
    switch (mode_) {
      case RowMode::kA8: a8(v, x); break;
      case RowMode::kA4: a4(v, x); break;
      case RowMode::kMxA8: mx<8>(v, x); break;
      case RowMode::kMxA4: mx<4>(v, x); break;
      default: a16(v, x);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] *= power_of_two(kXExponent);
    return pack_exact(x);
  }

 private:
  static __device__ __forceinline__ void a16(const float (&v)[4], float (&x)[4]) {
    const uint2 bits = pack_bf16(v);
    x[0] = __uint_as_float(bits.x << 16);
    x[1] = __uint_as_float(bits.x & 0xFFFF0000u);
    x[2] = __uint_as_float(bits.y << 16);
    x[3] = __uint_as_float(bits.y & 0xFFFF0000u);
  }
  // Of a row with a NaN or an infinity nothing finite comes out: its scale says so, or, where that is fixed, the element.
  __device__ __forceinline__ void a8(const float (&v)[4], float (&x)[4]) const {
    by_.divide(v, amax4(v), x);
    to_e4m3(x);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (!is_finite(v[i])) x[i] = kNotANumber;
    }
  }
  __device__ __forceinline__ void a4(const float (&v)[4], float (&x)[4]) const {
    const float amax = block_amax<4>(v);
    float scale[1] = {amax};
    by_.divide(scale, amax, scale);
    to_e4m3(scale);
    if (!is_finite(amax)) scale[0] = kNotANumber;
    const float step = scale[0] * scale_;
    const bool usable = step > 0.0f;  // false for NaN, which the product below keeps
    Divisor(step).divide(v, amax, x);
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = (usable ? to_e2m1(x[i]) : 0.0f) * scale[0];
  }
  // kBits: 4 or 8.
  template <int kBits>
  static __device__ __forceinline__ void mx(const float (&v)[4], float (&x)[4]) {
    const float amax = block_amax<8>(v);
    const uint8_t code = kBits == 4 ? MXFP4::scale(amax, Mxfp4Rule::kRound74) : MXFP8::scale(amax);
    const float step = E8M0::decode(code);
    const float inverse = code == E8M0::kNaN ? step : power_of_two(127 - static_cast<int>(code));
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] = v[i] * inverse;
    if constexpr (kBits == 4) {
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = to_e2m1(x[i]);
    } else {
      to_e4m3(x);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) x[i] *= step;
  }

  RowMode mode_;
  float scale_;
  Divisor by_;  // kA8: by the scale, kA4: by 6 of it
};

// Writes a thread's four neighbours; threads beyond k hold zeros. columns: padded M.
__device__ __forceinline__ void write_rounded(const RowOutput& out, const RowPlace& at, int columns, int k,
                                              const RowRounding& rounding, const float (&v)[4]) {
  const bool inside = at.element < k;
  if (out.mode == RowMode::kBf16Rows) {
    if (out.prompt_rows != 0) {
      if (at.element < (k + kPromptK - 1) / kPromptK * kPromptK)
        *reinterpret_cast<uint2*>(static_cast<uint8_t*>(out.x) + prompt_offset(out.prompt_rows, at.row, at.element)) =
            inside ? pack_bf16(v) : make_uint2(0, 0);
    } else if (inside) {
      *reinterpret_cast<uint2*>(static_cast<uint16_t*>(out.x) + static_cast<size_t>(at.row) * k + at.element) =
          pack_bf16(v);
    }
    return;
  }
  const uint2 bits = rounding.bits(v);
  auto* x = static_cast<uint8_t*>(out.x);
  if (out.prompt_rows != 0) {
    // Up to whole k steps: what an earlier pass of another number of rows left there is overwritten.
    if (at.step() < row_steps(k))
      *reinterpret_cast<uint2*>(x + prompt_offset(out.prompt_rows, at.row, at.element)) =
          inside ? bits : make_uint2(0, 0);
  } else if (inside) {
    *reinterpret_cast<uint2*>(x + static_cast<size_t>(at.step()) * x_chunk_bytes(columns) +
                              x_offset(columns, at.row, at.element % kStepK)) = bits;
  }
  if (at.element == 0) out.x_scale[at.row] = rounding.scale();
}

// --- open rows, of passes of one row: values and parts, behind where x^ would stand (x_bytes) ---

HB_HOST_DEVICE inline uint8_t* open_row(void* x, int k) {
  return static_cast<uint8_t*>(x) + static_cast<size_t>(row_steps(k)) * x_chunk_bytes(1);
}
HB_HOST_DEVICE inline RowPart* open_parts(uint8_t* row, int k) {
  return reinterpret_cast<RowPart*>(row + static_cast<size_t>(row_steps(k)) * kStepK * sizeof(float));
}

__device__ __forceinline__ void write_open(const RowOutput& out, const RowPlace& at, int k, RowPart part,
                                           const float (&v)[4]) {
  if (at.step() >= row_steps(k)) return;
  uint8_t* row = open_row(out.x, k);
  reinterpret_cast<float4*>(row)[at.element / 4] = make_float4(v[0], v[1], v[2], v[3]);
  if (threadIdx.x % 32 == 0) open_parts(row, k)[at.step()] = part;
}

// What a norm multiplies its row with.
__device__ __forceinline__ float norm_factor(float squares, int k, float eps) {
  return 1.0f / sqrtf(squares / static_cast<float>(k) + eps);
}

}  // namespace halfbyte::cuda
