// The shape of a tensor: outermost dimension first, row-major.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/checked.h"

namespace halfbyte {

struct Shape {
  std::vector<int64_t> dims;  // each >= 0; empty for a scalar

  size_t rank() const { return dims.size(); }
  int64_t operator[](size_t i) const { return dims[i]; }
  bool operator==(const Shape&) const = default;

  // Product of the dimensions; nothing on overflow.
  std::optional<uint64_t> elements() const {
    uint64_t n = 1;
    for (int64_t d : dims) {
      auto next = checked_mul(n, static_cast<uint64_t>(d));
      if (!next) return std::nullopt;
      n = *next;
    }
    return n;
  }

  // "[4096, 1024]"
  std::string text() const {
    std::string s = "[";
    for (size_t i = 0; i < dims.size(); ++i) s += (i ? ", " : "") + std::to_string(dims[i]);
    return s + "]";
  }
};

}  // namespace halfbyte
