// Bits, powers of two and rounding to nearest even, shared by all formats. Everything is constexpr and can run on a
// device: no library calls, no tables, no exceptions.
#pragma once

#include <bit>
#include <cstdint>

#if defined(__CUDACC__)
#define HB_HOST_DEVICE __host__ __device__
#else
#define HB_HOST_DEVICE
#endif

namespace halfbyte {

inline constexpr uint32_t kFloatSignBit = 0x80000000u;
inline constexpr uint32_t kFloatInfinity = 0x7F800000u;

HB_HOST_DEVICE constexpr uint32_t float_bits(float x) {
  return std::bit_cast<uint32_t>(x);
}
HB_HOST_DEVICE constexpr float bits_float(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
HB_HOST_DEVICE constexpr uint32_t magnitude_bits(float x) {
  return float_bits(x) & ~kFloatSignBit;
}
HB_HOST_DEVICE constexpr float magnitude(float x) {
  return bits_float(magnitude_bits(x));
}
HB_HOST_DEVICE constexpr bool is_finite(float x) {
  return magnitude_bits(x) < kFloatInfinity;
}
HB_HOST_DEVICE constexpr bool is_nan(float x) {
  return magnitude_bits(x) > kFloatInfinity;
}

// The larger magnitude, by the order of the bits: a NaN is larger than infinity, so it is never lost on the way to a
// scale. `amax` must be a magnitude itself.
HB_HOST_DEVICE constexpr float wider_amax(float amax, float x) {
  return magnitude_bits(x) > float_bits(amax) ? magnitude(x) : amax;
}

// amax over n values; 0 for none; NaN or infinity if there is one.
HB_HOST_DEVICE constexpr float abs_max(const float* x, int64_t n) {
  float amax = 0.0f;
  for (int64_t i = 0; i < n; ++i) amax = wider_amax(amax, x[i]);
  return amax;
}

// Rounds to an integer, ties to even. |x| <= 2^22; adding and taking away 1.5 * 2^23 leaves no room for a fraction.
HB_HOST_DEVICE constexpr float round_even(float x) {
  const float shifter = 12582912.0f;
  return (x + shifter) - shifter;
}

// 2^e for e in [-149, 127], subnormals included.
HB_HOST_DEVICE constexpr float power_of_two(int e) {
  return e >= -126 ? bits_float(static_cast<uint32_t>(e + 127) << 23) : bits_float(1u << (e + 149));
}

// floor(log2 x) for a finite x > 0, subnormals included: -149 .. 127.
HB_HOST_DEVICE constexpr int floor_log2(float x) {
  const uint32_t bits = magnitude_bits(x);
  const int exponent = static_cast<int>(bits >> 23);
  if (exponent != 0) return exponent - 127;
  return -118 - std::countl_zero(bits);  // bit 22 of a subnormal is 2^-127, and has 9 zeros above it
}

// The 23 fraction bits of x / 2^floor_log2(x), for a finite x > 0: the significand is 1 + fraction / 2^23.
HB_HOST_DEVICE constexpr uint32_t significand_fraction(float x) {
  const uint32_t bits = magnitude_bits(x);
  if (bits >> 23 != 0) return bits & 0x7FFFFFu;
  return (bits << (std::countl_zero(bits) - 8)) & 0x7FFFFFu;
}

}  // namespace halfbyte
