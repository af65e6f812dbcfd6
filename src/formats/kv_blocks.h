// 4-bit rows of a key-value cache: 16 elements share an E4M3 scale, a layer's keys (or values) share an FP32 scale.
#pragma once

#include "formats/e1m2.h"
#include "formats/e2m1.h"
#include "formats/e4m3.h"

namespace halfbyte {

// Element   E2M1 (the cache of vLLM and TensorRT-LLM in NVFP4) or E1M2 (ReQAT, arXiv 2606.15682, 2.4).
// Value     (element(code) * e4m3(scale), exact) * alpha, rounded once. alpha is a multiplier: the checkpoint's k_scale or
//           v_scale, else 1.
// Block     16 consecutive channels of one token and head; a head of k channels has ceil(k/16) blocks.
// Scale     e4m3(amax / (kMax * alpha)), not clamped from below: a tiny block becomes zero. With a NaN or an infinity it is NaN
//           (0x7F), and the codes are zero.
// Codes     element(x / (scale * alpha)), the rounded scale, the product rounded first, true division. E2M1 blocks are those
//           of NVFP4::quantize_activation_row.
template <class Element>
struct KvBlocks {
  static constexpr int64_t kBlock = 16;

  HB_HOST_DEVICE static constexpr int64_t blocks(int64_t k) { return (k + kBlock - 1) / kBlock; }

  HB_HOST_DEVICE static constexpr uint8_t scale(float amax, float alpha) {
    return is_finite(amax) ? E4M3::encode(amax / (Element::kMax * alpha)) : E4M3::kNaN;
  }

  // One row of k elements -> k codes, one a byte, and blocks(k) scales.
  HB_HOST_DEVICE static constexpr void quantize_row(const float* x, int64_t k, float alpha, uint8_t* codes,
                                                    uint8_t* scales) {
    for (int64_t begin = 0; begin < k; begin += kBlock) {
      const int64_t end = begin + kBlock < k ? begin + kBlock : k;
      const uint8_t s = scale(abs_max(x + begin, end - begin), alpha);
      const float step = E4M3::decode(s) * alpha;
      for (int64_t i = begin; i < end; ++i) codes[i] = step > 0.0f ? Element::encode(x[i] / step) : uint8_t{0};
      scales[begin / kBlock] = s;
    }
  }

  HB_HOST_DEVICE static constexpr float decode(uint8_t code, uint8_t scale, float alpha) {
    return Element::decode(code) * E4M3::decode(scale) * alpha;
  }
};

}  // namespace halfbyte
