// Arithmetic on sizes that come from a file: every product and sum of untrusted numbers goes through here.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>

namespace halfbyte {

// a * b and a + b, or nothing on overflow.
inline std::optional<uint64_t> checked_mul(uint64_t a, uint64_t b) {
  uint64_t out;
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

inline std::optional<uint64_t> checked_add(uint64_t a, uint64_t b) {
  uint64_t out;
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// The value in a narrower or signed type, or nothing if it does not fit.
template <std::integral To, std::integral From>
std::optional<To> checked_cast(From value) {
  To out = static_cast<To>(value);
  if (static_cast<From>(out) != value || (out < To{}) != (value < From{})) return std::nullopt;
  return out;
}

}  // namespace halfbyte
