// F16, IEEE 754 binary16.
#pragma once

#include "formats/rounding.h"

namespace halfbyte {

// Bits      s e(5) m(10). 65504 down to 2^-14 normal, 2^-24 subnormal; infinity and NaN as IEEE.
// Rounding  to nearest even; 65520 and above become infinity. NaN stays NaN, made quiet.
struct F16 {
  HB_HOST_DEVICE static constexpr float decode(uint16_t code) {
    const uint32_t sign = static_cast<uint32_t>(code & 0x8000) << 16;
    const uint32_t body = code & 0x7FFF;
    if (body < 0x400) return bits_float(sign | float_bits(static_cast<float>(body) * 0x1p-24f));
    if (body >= 0x7C00) return bits_float(sign | kFloatInfinity | body << 13);
    return bits_float(sign | ((body << 13) + (112u << 23)));  // exponent bias 15 -> 127
  }

  HB_HOST_DEVICE static constexpr uint16_t encode(float x) {
    const uint32_t sign = (float_bits(x) >> 16) & 0x8000u;
    const uint32_t bits = magnitude_bits(x);
    if (bits > kFloatInfinity) return static_cast<uint16_t>(sign | 0x7E00u | (bits >> 13 & 0x3FFu));
    const float v = bits_float(bits);
    uint32_t body = 0;
    if (v >= 65520.0f) {
      body = 0x7C00;
    } else if (v < 0x1p-14f) {
      body = static_cast<uint32_t>(round_even(v * 0x1p24f));  // 0x400 is the code of the smallest normal
    } else {
      body = ((bits + 0xFFFu + ((bits >> 13) & 1u)) >> 13) - (112u << 10);
    }
    return static_cast<uint16_t>(sign | body);
  }
};

}  // namespace halfbyte
