// E8M0, the scale of an MX block: a power of two (OCP Microscaling Formats v1.0, section 5.4.1).
#pragma once

#include "formats/rounding.h"

namespace halfbyte {

// Bits      the biased exponent. Value 2^(code - 127), 2^-127 (an FP32 subnormal) to 2^127; 255 is NaN. No sign, no zero.
// Rounding  none of its own: the writer's rule picks the exponent (formats/mxfp4.h).
struct E8M0 {
  static constexpr int kMinExponent = -127;
  static constexpr int kMaxExponent = 127;
  static constexpr uint8_t kNaN = 255;
  static constexpr uint8_t kOne = 127;

  HB_HOST_DEVICE static constexpr float decode(uint8_t code) {
    return code == kNaN ? bits_float(0x7FC00000u) : power_of_two(static_cast<int>(code) - 127);
  }

  // 2^exponent, the exponent clamped to what the format holds.
  HB_HOST_DEVICE static constexpr uint8_t from_exponent(int exponent) {
    const int e = exponent < kMinExponent ? kMinExponent : exponent > kMaxExponent ? kMaxExponent : exponent;
    return static_cast<uint8_t>(e + 127);
  }
};

}  // namespace halfbyte
