// A linear's input, row by row, so that a row is made, rounded and forgotten while it is in a core's cache.
#pragma once

#include <cstdint>

namespace halfbyte {

// Refers to a callable of the same form, which must outlive it and be safe to call for different rows at once. Each row
// is asked for once: making it may use up what it is made of.
class RowSource {
 public:
  template <class Make>
  RowSource(const Make& make)
      : make_(&make), call_([](const void* m, int64_t r, float* scratch) -> const float* {
          return (*static_cast<const Make*>(m))(r, scratch);
        }) {}

  // Row r [k], FP32: made in `scratch` [k], or where it lies.
  const float* operator()(int64_t r, float* scratch) const { return call_(make_, r, scratch); }

 private:
  const void* make_;
  const float* (*call_)(const void* make, int64_t r, float* scratch);
};

}  // namespace halfbyte
