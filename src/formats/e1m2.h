// E1M2, the uniform 4-bit element of the ReQAT key-value cache (arXiv 2606.15682, W4A4KV4).
#pragma once

#include "formats/rounding.h"

namespace halfbyte {

// Bits      s e m m, in the low nibble of a byte: index 0..7 = 0, 0.5, ..., 3.5; sign in bit 3.
// Rounding  to nearest; a tie goes to the even index; saturates at 3.5.
// Zero, NaN and packing: as E2M1.
struct E1M2 {
  static constexpr float kMax = 3.5f;
  static constexpr int kCodes = 16;

  HB_HOST_DEVICE static constexpr float decode(uint8_t code) {
    const float value = 0.5f * static_cast<float>(code & 7);
    return (code & 8) != 0 ? -value : value;
  }

  HB_HOST_DEVICE static constexpr uint8_t encode(float x) {
    if (is_nan(x)) return 7;
    const float v = magnitude(x);
    const int index = v >= kMax ? 7 : static_cast<int>(round_even(v * 2.0f));
    return static_cast<uint8_t>(index | (x < 0.0f && index != 0 ? 8 : 0));
  }
};

}  // namespace halfbyte
