// E4M3 (the "fn" form), the scale of an NVFP4 block and the element of FP8 and MXFP8 activations.
#pragma once

#include "formats/rounding.h"

namespace halfbyte {

// Bits      s eeee mmm. Value: e = 0: m/8 * 2^-6; else (1 + m/8) * 2^(e-7).
// Range     448 (0x7E) down to 2^-6 normal, 2^-9 subnormal. No infinity; 0x7F and 0xFF are NaN.
// Rounding  to nearest even; saturates at +-448, infinity too. NaN becomes 0x7F. Keeps the sign of zero.
struct E4M3 {
  static constexpr float kMax = 448.0f;
  static constexpr float kMinNormal = 0x1p-6f;
  static constexpr float kMinSubnormal = 0x1p-9f;
  static constexpr uint8_t kNaN = 0x7F;
  static constexpr uint8_t kOne = 0x38;

  HB_HOST_DEVICE static constexpr bool is_nan_code(uint8_t code) { return (code & 0x7F) == kNaN; }

  HB_HOST_DEVICE static constexpr float decode(uint8_t code) {
    const uint32_t sign = static_cast<uint32_t>(code & 0x80) << 24;
    const uint32_t body = code & 0x7F;
    if (body == kNaN) return bits_float(sign | 0x7FC00000u);
    if (body < 8) return bits_float(sign | float_bits(static_cast<float>(body) * kMinSubnormal));
    return bits_float(sign | ((body << 20) + (120u << 23)));  // exponent bias 7 -> 127
  }

  HB_HOST_DEVICE static constexpr uint8_t encode(float x) {
    if (is_nan(x)) return kNaN;
    const uint32_t sign = (float_bits(x) >> 24) & 0x80u;
    const uint32_t bits = magnitude_bits(x);
    const float v = bits_float(bits);
    uint32_t body = 0;
    if (v >= kMax) {
      body = 0x7E;
    } else if (v < kMinNormal) {
      body = static_cast<uint32_t>(round_even(v * 512.0f));  // 8 is the code of the smallest normal
    } else {
      body = ((bits + 0x7FFFFu + ((bits >> 20) & 1u)) >> 20) - (120u << 3);  // rounds the 20 bits below the mantissa
      if (body > 0x7E) body = 0x7E;
    }
    return static_cast<uint8_t>(sign | body);
  }
};

}  // namespace halfbyte
