// E2M1, the 4-bit floating-point element of NVFP4 and MXFP4 (OCP Microscaling Formats v1.0, section 5.3.3).
#pragma once

#include "formats/rounding.h"

namespace halfbyte {

// Bits      s e e m, in the low nibble of a byte. Value: e = 0: m/2; else (1 + m/2) * 2^(e-1).
// Values    index 0..7 = 0, 0.5, 1, 1.5, 2, 3, 4, 6; sign in bit 3. No infinity, no NaN.
// Rounding  to nearest; a tie goes to the even index; saturates at 6. The borders are .25 .75 1.25 1.75 2.5 3.5 5.
// Zero      encode() never makes 0x8 (-0): a negative value that rounds to zero becomes 0x0. Files may hold 0x8.
// NaN       becomes index 7 with the sign bit clear; callers refuse NaN before they get here.
// Packing   two codes a byte along a row, the even element in the low nibble.
struct E2M1 {
  static constexpr float kMax = 6.0f;
  static constexpr int kCodes = 16;

  // Twice the value: an integer in [-12, 12], the form in which sums are exact.
  HB_HOST_DEVICE static constexpr int decode_doubled(uint8_t code) {
    const int exponent = (code >> 1) & 3, mantissa = code & 1;
    const int doubled = exponent == 0 ? mantissa : (2 + mantissa) << (exponent - 1);
    return (code & 8) != 0 ? -doubled : doubled;
  }

  HB_HOST_DEVICE static constexpr float decode(uint8_t code) {
    const float value = 0.5f * static_cast<float>(decode_doubled(code & 7));
    return (code & 8) != 0 ? -value : value;  // keeps -0
  }

  HB_HOST_DEVICE static constexpr uint8_t encode(float x) {
    const float v = magnitude(x);
    if (is_nan(x)) return 7;
    const int index = (v > 0.25f) + (v >= 0.75f) + (v > 1.25f) + (v >= 1.75f) + (v > 2.5f) + (v >= 3.5f) + (v > 5.0f);
    return static_cast<uint8_t>(index | (x < 0.0f && index != 0 ? 8 : 0));
  }

  // Element i of a packed row.
  HB_HOST_DEVICE static constexpr uint8_t unpack(const uint8_t* row, int64_t i) {
    return static_cast<uint8_t>((row[i / 2] >> (i % 2 * 4)) & 15);
  }
  HB_HOST_DEVICE static constexpr uint8_t pack(uint8_t even, uint8_t odd) {
    return static_cast<uint8_t>(even | odd << 4);
  }
};

}  // namespace halfbyte
