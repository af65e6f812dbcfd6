// Weights that are packed as they are stored: rows of codes, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/api.h"

namespace halfbyte::ref {

constexpr size_t align_up(size_t bytes) {
  return (bytes + kKernelAlign - 1) / kKernelAlign * kKernelAlign;
}

// Weight: uint16_t (BF16), uint8_t (FP8) or float.
template <class Weight>
struct PlainRows {
  static size_t packed_bytes(int64_t n, int64_t k) { return static_cast<size_t>(n * k) * sizeof(Weight); }

  static void pack(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed) {
    const size_t row = packed_bytes(1, w.k);
    std::memcpy(packed + n_begin * row, w.codes.bytes().data() + n_begin * row, (n_end - n_begin) * row);
  }
};

}  // namespace halfbyte::ref
