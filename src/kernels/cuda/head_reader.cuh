// What the attention kernels share: a head of q, k or v from the slots of its linear, and places in the paged cache.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "formats/bf16.h"
#include "formats/e4m3.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prompt_layout.h"

namespace halfbyte::cuda {

inline constexpr float kLog2e = 1.44269504f;

// What the attention kernels can do; kUnsupported that says what was found.
Status check_attention(const AttentionRows& args);

// One head's vector as a warp holds it: lane i has dimensions i, i + 32, ...; pairs of a rotation lie in one lane.
template <int kDim>
struct HeadVector {
  static constexpr int kPerLane = kDim / 32;
  float v[kPerLane];
};

// A head of q, k or v on its way from the slots. Made before the wait for the kernel ahead: it reads what never changes.
template <int kDim>
class HeadReader {
 public:
  static constexpr int kPerLane = kDim / 32;
  static constexpr int kHalf = kPerLane / 2;

  // norm: [kDim] or null; rotate: by the position that place() is given.
  __device__ __forceinline__ HeadReader(const AttentionRows& a, int first_row, const float* norm, bool rotate, int lane)
      : qkv_(a.qkv), eps_(a.eps), row_(first_row + lane), norms_(norm != nullptr), rotates_(rotate) {
    // A head of 64 or 128 lies in one panel.
    slots_ = qkv_.slot_counts != nullptr ? qkv_.slot_counts[first_row >> 7] : 1;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      const int row = row_ + 32 * i;
      scale_[i] = qkv_.scales != nullptr ? qkv_.scales[row] : 1.0f;
      bias_[i] = qkv_.bias != nullptr ? qkv_.bias[row] : 0.0f;
      weight_[i] = norms_ ? norm[lane + 32 * i] : 1.0f;
    }
  }
  __device__ __forceinline__ void place(const AttentionRows& a, int position, int lane) {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const size_t at = static_cast<size_t>(position) * (kDim / 2) + lane + 32 * i;
      cos_[i] = rotates_ ? a.cos[at] : 1.0f;
      sin_[i] = rotates_ ? a.sin[at] : 0.0f;
    }
  }

  // On their way: not all of a warp's other loads need wait for them.
  struct Slots {
    float part[kMaxSlots][kPerLane];
    float x_scale;
    int count;
  };
  __device__ __forceinline__ void ask(int column, Slots& slots) const {
    const int slots_count = ptx::uniform(slots_);
    slots.count = slots_count;
    const float* at = qkv_.partial + static_cast<size_t>(column) * qkv_.rows + row_;
    const size_t stride = static_cast<size_t>(qkv_.columns) * qkv_.rows;
#pragma unroll
    for (int s = 0; s < kMaxSlots; ++s) {
      if (s == slots_count) break;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) slots.part[s][i] = __ldcg(at + s * stride + 32 * i);
    }
    slots.x_scale = qkv_.x_scale != nullptr ? __ldcg(qkv_.x_scale + column) : 1.0f;
  }
  __device__ __forceinline__ HeadVector<kDim> finish(Slots& slots) const {
    HeadVector<kDim> h;
#pragma unroll
    for (int s = 1; s < kMaxSlots; ++s) {
      if (s == slots.count) break;
#pragma unroll
      for (int i = 0; i < kPerLane; ++i) slots.part[0][i] += slots.part[s][i];
    }
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      h.v[i] = slots.part[0][i] * (scale_[i] * slots.x_scale);
      if (qkv_.bias != nullptr) h.v[i] += bias_[i];
    }
    if (norms_) norm(h);
    if (rotates_) rotate(h);
    return h;
  }
  __device__ __forceinline__ HeadVector<kDim> read(int column) const {
    Slots slots;
    ask(column, slots);
    return finish(slots);
  }

 private:
  __device__ __forceinline__ void norm(HeadVector<kDim>& h) const {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sum += h.v[i] * h.v[i];
#pragma unroll
    for (int mask = 16; mask > 0; mask /= 2) sum += __shfl_xor_sync(~0u, sum, mask);
    const float inverse = 1.0f / sqrtf(sum / static_cast<float>(kDim) + eps_);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) h.v[i] = (h.v[i] * inverse) * weight_[i];
  }
  __device__ __forceinline__ void rotate(HeadVector<kDim>& h) const {
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      const float x = h.v[i], y = h.v[i + kHalf];
      h.v[i] = x * cos_[i] - y * sin_[i];
      h.v[i + kHalf] = y * cos_[i] + x * sin_[i];
    }
  }

  const SlotView& qkv_;
  float eps_;
  int row_;
  bool norms_, rotates_;
  int slots_;
  float scale_[kPerLane], bias_[kPerLane], weight_[kPerLane];
  float cos_[kHalf], sin_[kHalf];
};

// How the cache holds numbers, and what the tensor cores get: BF16 as it stands, with FP32 factors as two BF16 halves each
// (16 bits); E4M3 as FP16, with factors as two FP16 halves.
struct Bf16Kv {
  using Element = uint16_t;
  using Eight = uint4;
  static constexpr float kQueryPower = 1.0f;   // queries are held times this
  static constexpr float kWeightPower = 1.0f;  // and exponentials times this
  static constexpr int kTilesPerWord = 1;
  static __device__ __forceinline__ uint4 widen(const uint4& v) { return v; }
  static __device__ __forceinline__ uint16_t encode(float v, float) { return BF16::encode(v); }
  // What a score and a sum of values are multiplied by; for BF16 nothing of the cache's.
  static __device__ __forceinline__ float score_scale(const AttentionRows& a) { return a.scale; }
  static __device__ __forceinline__ float value(float sum, const AttentionRows&) { return sum; }

  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(two);
  }
  static __device__ __forceinline__ float2 unpack(uint32_t two) {
    return make_float2(__uint_as_float(two << 16), __uint_as_float(two & 0xFFFF0000u));
  }
  // The 16-row operand of a k16 step from four words each of the rows g and g + 8.
  static __device__ __forceinline__ void key_operand(uint32_t (&a)[4], const uint32_t (&low)[4],
                                                     const uint32_t (&high)[4], int step) {
    a[0] = low[2 * step];
    a[1] = high[2 * step];
    a[2] = low[2 * step + 1];
    a[3] = high[2 * step + 1];
  }
  // The same of V transposed: the dimensions 2 tile and 2 tile + 1 of a word, at four positions.
  static __device__ __forceinline__ void value_operand(uint32_t (&a)[4], uint32_t w0, uint32_t w1, uint32_t w2,
                                                       uint32_t w3, int) {
    a[0] = __byte_perm(w0, w1, 0x5410);
    a[1] = __byte_perm(w0, w1, 0x7632);
    a[2] = __byte_perm(w2, w3, 0x5410);
    a[3] = __byte_perm(w2, w3, 0x7632);
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_bf16(d, a[0], a[1], a[2], a[3], b0, b1);
  }
};
// E4M3 of value / scale. Its scale is left to the products' results.
struct Fp8Kv {
  using Element = uint8_t;
  using Eight = uint2;
  static constexpr float kQueryPower = 0x1p-4f;   // |q| < 2^20
  static constexpr float kWeightPower = 0x1p10f;  // exponentials up to 2^kSlack, and down to 2^-34 before bits are lost
  static constexpr int kTilesPerWord = 2;
  static __device__ __forceinline__ uint32_t widen_two(uint32_t codes) {
    const uint32_t bits = fp8_as_bf16(codes), power = kFp8Power;
    const __nv_bfloat162 product =
        __hmul2(reinterpret_cast<const __nv_bfloat162&>(bits), reinterpret_cast<const __nv_bfloat162&>(power));
    return reinterpret_cast<const uint32_t&>(product);
  }
  static __device__ __forceinline__ uint4 widen(const uint2& v) {
    return make_uint4(widen_two(__byte_perm(v.x, 0, 0x1404)), widen_two(__byte_perm(v.x, 0, 0x3424)),
                      widen_two(__byte_perm(v.y, 0, 0x1404)), widen_two(__byte_perm(v.y, 0, 0x3424)));
  }
  static __device__ __forceinline__ uint8_t encode(float v, float scale) { return E4M3::encode(v / scale); }
  static __device__ __forceinline__ float score_scale(const AttentionRows& a) { return a.scale * a.kv.key_scale; }
  static __device__ __forceinline__ float value(float sum, const AttentionRows& a) { return sum * a.kv.value_scale; }

  static __device__ __forceinline__ uint32_t pack(float low, float high) {
    const __half2 two = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(two);
  }
  static __device__ __forceinline__ float2 unpack(uint32_t two) {
    return __half22float2(reinterpret_cast<const __half2&>(two));
  }
  static __device__ __forceinline__ void key_operand(uint32_t (&a)[4], const uint32_t (&low)[4],
                                                     const uint32_t (&high)[4], int step) {
    ptx::cvt_f16x2_e4m3x2(a[0], a[2], low[step]);
    ptx::cvt_f16x2_e4m3x2(a[1], a[3], high[step]);
  }
  static __device__ __forceinline__ void value_operand(uint32_t (&a)[4], uint32_t w0, uint32_t w1, uint32_t w2,
                                                       uint32_t w3, int tile) {
    const uint32_t order = tile == 0 ? 0x5140 : 0x7362;  // pairs of positions
    ptx::cvt_f16x2_e4m3x2(a[0], a[1], __byte_perm(w0, w1, order));
    ptx::cvt_f16x2_e4m3x2(a[2], a[3], __byte_perm(w2, w3, order));
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    ptx::mma_m16n8k16_f16(d, a, b0, b1);
  }
};

// page_tokens as a power of two.
__device__ __forceinline__ int page_shift(const KvPages& kv) {
  return __ffs(kv.page_tokens) - 1;
}

// Keys (which = 0) or values (1) of a head at a position.
template <class Kv>
__device__ __forceinline__ typename Kv::Element* cache_row(const KvPages& kv, int row, int kv_heads, int head_dim,
                                                           int which, int head, int position) {
  const int shift = page_shift(kv);
  const int page = kv.tables[static_cast<size_t>(row) * kv.table_stride + (position >> shift)];
  const size_t slot = (static_cast<size_t>(which * kv_heads + head) << shift) + (position & (kv.page_tokens - 1));
  return reinterpret_cast<typename Kv::Element*>(kv.base + static_cast<size_t>(page) * kv.page_stride +
                                                 kv.layer_offset) +
         slot * head_dim;
}

template <class Kv, int kDim>
__device__ __forceinline__ void store_head(const HeadVector<kDim>& h, typename Kv::Element* to, float scale, int lane) {
#pragma unroll
  for (int i = 0; i < HeadVector<kDim>::kPerLane; ++i) to[lane + 32 * i] = Kv::encode(h.v[i], scale);
}

}  // namespace halfbyte::cuda
