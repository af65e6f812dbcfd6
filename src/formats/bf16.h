// BF16, the upper half of an FP32.
#pragma once

#include "formats/rounding.h"

namespace halfbyte {

// Bits      s e(8) m(7). Range and exponents of FP32, 8 significant bits.
// Rounding  to nearest even (overflows to infinity as FP32 does). NaN stays NaN, made quiet.
struct BF16 {
  HB_HOST_DEVICE static constexpr float decode(uint16_t code) { return bits_float(static_cast<uint32_t>(code) << 16); }

  HB_HOST_DEVICE static constexpr uint16_t encode(float x) {
    const uint32_t bits = float_bits(x);
    if (is_nan(x)) return static_cast<uint16_t>((bits >> 16) | 0x40u);
    return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
  }

  // x rounded to BF16, as FP32.
  HB_HOST_DEVICE static constexpr float round(float x) { return decode(encode(x)); }
};

}  // namespace halfbyte
