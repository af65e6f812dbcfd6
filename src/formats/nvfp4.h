// NVFP4: 16 E2M1 elements share an E4M3 scale, a tensor (or activation row) shares an FP32 scale.
#pragma once

#include "formats/e2m1.h"
#include "formats/e4m3.h"

namespace halfbyte {

// Value     e2m1(code) * e4m3(scale) * alpha. alpha is a MULTIPLIER (ModelOpt's weight_scale_2, input_scale);
//           compressed-tensors stores its inverse. Dequantised in FP32 as (e2m1 * scale, exact) * alpha, rounded once.
// Block     16 consecutive k of one row; a row of k elements has ceil(k/16) blocks, the last padded with zero codes.
// Size      8 bytes of codes and 1 of scale a block: 4.5 bits an element.
// Scale     e4m3(amax / (6 * alpha)): the largest element maps to 6. FP32, true division.
// Codes     e2m1(x / (scale * alpha)), the ROUNDED scale, the product rounded first, true division (as ModelOpt's
//           export computes, Model-Optimizer a2fbac7). When that product is 0 the codes are 0.
// Zero      a zero block has zero codes; its weight scale is 1.0 (a reader may divide by it), its activation scale 0.
// NaN       a block with a NaN or an infinity gets scale NaN (0x7F) and zero codes, so that no finite number comes out.
struct NVFP4 {
  static constexpr int kBlock = 16;
  static constexpr int kBlockCodeBytes = 8;
  static constexpr float kRange = E2M1::kMax * E4M3::kMax;  // 2688: amax / alpha at full use of both formats

  HB_HOST_DEVICE static constexpr int64_t blocks(int64_t k) { return (k + kBlock - 1) / kBlock; }
  HB_HOST_DEVICE static constexpr int64_t code_bytes(int64_t k) { return blocks(k) * kBlockCodeBytes; }
  HB_HOST_DEVICE static constexpr int64_t scale_bytes(int64_t k) { return blocks(k); }

  // alpha for values up to amax (of a tensor, or of a row when scales are per token): amax / 2688, and 1 where that is 0.
  HB_HOST_DEVICE static constexpr float tensor_scale(float amax) {
    const float alpha = amax / kRange;
    return alpha == 0.0f ? 1.0f : alpha;
  }

  // Clamped from below to 2^-9, so that a small block never loses its scale.
  HB_HOST_DEVICE static constexpr uint8_t weight_scale(float amax, float alpha) {
    if (amax == 0.0f) return E4M3::kOne;
    const uint8_t scale = activation_scale(amax, alpha);
    return scale == 0 ? uint8_t{1} : scale;
  }

  // Not clamped from below: a tiny block becomes zero.
  HB_HOST_DEVICE static constexpr uint8_t activation_scale(float amax, float alpha) {
    if (!is_finite(amax)) return E4M3::kNaN;
    return E4M3::encode(amax / (E2M1::kMax * alpha));
  }

  // Rounds n <= 16 elements with a given scale; writes 8 bytes, padded with zero codes.
  HB_HOST_DEVICE static constexpr void encode_block(const float* x, int n, uint8_t scale, float alpha, uint8_t* codes) {
    const float step = E4M3::decode(scale) * alpha;
    const bool usable = step > 0.0f;  // false for NaN
    for (int i = 0; i < kBlock; i += 2) {
      const uint8_t even = usable && i < n ? E2M1::encode(x[i] / step) : uint8_t{0};
      const uint8_t odd = usable && i + 1 < n ? E2M1::encode(x[i + 1] / step) : uint8_t{0};
      codes[i / 2] = E2M1::pack(even, odd);
    }
  }

  // One row of k elements -> code_bytes(k) and scale_bytes(k) bytes.
  HB_HOST_DEVICE static constexpr void quantize_weight_row(const float* x, int64_t k, float alpha, uint8_t* codes,
                                                           uint8_t* scales) {
    quantize_row</*kWeight=*/true>(x, k, alpha, codes, scales);
  }
  HB_HOST_DEVICE static constexpr void quantize_activation_row(const float* x, int64_t k, float alpha, uint8_t* codes,
                                                               uint8_t* scales) {
    quantize_row</*kWeight=*/false>(x, k, alpha, codes, scales);
  }

  HB_HOST_DEVICE static constexpr void dequantize_row(const uint8_t* codes, const uint8_t* scales, float alpha,
                                                      int64_t k, float* out) {
    for (int64_t i = 0; i < k; ++i) {
      out[i] = E2M1::decode(E2M1::unpack(codes, i)) * E4M3::decode(scales[i / kBlock]) * alpha;
    }
  }

 private:
  template <bool kWeight>
  HB_HOST_DEVICE static constexpr void quantize_row(const float* x, int64_t k, float alpha, uint8_t* codes,
                                                    uint8_t* scales) {
    for (int64_t b = 0; b < blocks(k); ++b) {
      const float* block = x + b * kBlock;
      const int64_t left = k - b * kBlock;
      const int n = static_cast<int>(left < kBlock ? left : kBlock);
      const float amax = abs_max(block, n);
      scales[b] = kWeight ? weight_scale(amax, alpha) : activation_scale(amax, alpha);
      encode_block(block, n, scales[b], alpha, codes + b * kBlockCodeBytes);
    }
  }
};

}  // namespace halfbyte
