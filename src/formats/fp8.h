// FP8 activations: E4M3 codes with a scale a row (beside NVFP4 weights) or a 32-block (MXFP8, beside MXFP4 weights).
#pragma once

#include "formats/e4m3.h"
#include "formats/e8m0.h"

namespace halfbyte {

// Value     e4m3(code) * scale, one FP32 scale a row.
// Scale     per token: amax / 448, and 1 where that is 0; static: the checkpoint's.
// Codes     e4m3(x / scale), FP32, true division.
// NaN       a row with a NaN or an infinity gets scale NaN and zero codes.
struct FP8Row {
  HB_HOST_DEVICE static constexpr float scale(float amax) {
    const float s = amax / E4M3::kMax;
    return s == 0.0f ? 1.0f : s;
  }

  // One row of k elements -> k codes; returns the row's scale. static_scale 0: per token.
  HB_HOST_DEVICE static constexpr float quantize_row(const float* x, int64_t k, float static_scale, uint8_t* codes) {
    const float amax = abs_max(x, k);
    const bool finite = is_finite(amax);
    const float s = !finite ? bits_float(0x7FC00000u) : static_scale > 0.0f ? static_scale : scale(amax);
    for (int64_t i = 0; i < k; ++i) codes[i] = finite ? E4M3::encode(x[i] / s) : uint8_t{0};
    return s;
  }
};

// MXFP8 (OCP Microscaling Formats v1.0): value e4m3(code) * 2^(scale - 127).
// Block     32 consecutive k of one row, one E8M0 scale: e = floor(log2 amax) - 8, so a significand above 1.75 saturates
//           at 448. Zero block: byte 0, zero codes. A block with a NaN or an infinity: byte 255, zero codes.
// Codes     e4m3(x / 2^e), FP32; one byte an element.
struct MXFP8 {
  static constexpr int kBlock = 32;

  HB_HOST_DEVICE static constexpr int64_t blocks(int64_t k) { return (k + kBlock - 1) / kBlock; }

  HB_HOST_DEVICE static constexpr uint8_t scale(float amax) {
    if (!is_finite(amax)) return E8M0::kNaN;
    return amax == 0.0f ? uint8_t{0} : E8M0::from_exponent(floor_log2(amax) - 8);
  }

  // One row of k elements -> k codes and blocks(k) scales.
  HB_HOST_DEVICE static constexpr void quantize_row(const float* x, int64_t k, uint8_t* codes, uint8_t* scales) {
    for (int64_t b = 0; b < blocks(k); ++b) {
      const int64_t begin = b * kBlock;
      const int64_t end = begin + kBlock < k ? begin + kBlock : k;
      scales[b] = scale(abs_max(x + begin, end - begin));
      const float step = E8M0::decode(scales[b]);
      for (int64_t i = begin; i < end; ++i) {
        codes[i] = scales[b] == E8M0::kNaN ? uint8_t{0} : E4M3::encode(x[i] / step);
      }
    }
  }
};

}  // namespace halfbyte
