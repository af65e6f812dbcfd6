// Runs any linear kernel of the registry on plain arrays, the way a model does: pack by ranges, quantise, run in passes
// of max_rows and ranges of rows.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/registry.h"
#include "support/golden_file.h"

namespace halfbyte::testing {

// The golden file of a topic: of this tree, or of the folder HALFBYTE_GOLDEN (a test program carried elsewhere).
inline GoldenFile open_golden(const std::string& topic) {
  if (const char* folder = std::getenv("HALFBYTE_GOLDEN"))
    return GoldenFile(std::string(folder) + "/" + topic + ".hbg");
  return GoldenFile::open_topic(topic);
}

inline Buffer buffer_of(const void* data, size_t bytes) {
  Buffer b = Buffer::allocate(bytes);
  if (bytes != 0) std::memcpy(b.mutable_bytes().data(), data, bytes);
  return b;
}

inline QuantLinear make_linear(WeightFormat format, int64_t n, int64_t k, const void* codes, const void* scales,
                               float tensor_scale) {
  QuantLinear w;
  w.name = "test";
  w.format = format;
  w.n = n;
  w.k = k;
  w.codes = buffer_of(codes, static_cast<size_t>(n * code_bytes_per_row(format, k)));
  w.block_scales = buffer_of(scales, static_cast<size_t>(n * scale_bytes_per_row(format, k)));
  w.tensor_scale = tensor_scale;
  return w;
}

// How a case is cut; the result must not depend on it.
struct Cut {
  int64_t rows_a_pass = 0;    // 0: max_rows
  int64_t tiles_a_range = 0;  // 0: all rows of the output at once
};

inline std::vector<float> run_linear(const LinearKernel& kernel, const QuantLinear& w, const std::vector<float>& x,
                                     float alpha, const float* bias, Cut cut = {}) {
  const int64_t m = static_cast<int64_t>(x.size()) / w.k;
  const int64_t range = cut.tiles_a_range == 0 ? w.n : cut.tiles_a_range * kernel.row_tile;
  const int64_t pass = cut.rows_a_pass == 0 ? kernel.max_rows : std::min(cut.rows_a_pass, kernel.max_rows);
  Buffer packed = Buffer::allocate(kernel.packed_bytes(w.n, w.k));
  for (int64_t n = 0; n < w.n; n += range) {
    kernel.pack(w, n, std::min(n + range, w.n), packed.mutable_bytes().data());
  }
  const size_t row_bytes = kernel.activation_bytes(w.k);
  Buffer activations = Buffer::allocate(row_bytes * static_cast<size_t>(m));
  kernel.quantize(x.data(), m, w.k, alpha, activations.mutable_bytes().data());

  const int64_t ldy = w.n + 3;  // a leading dimension of its own; the gap must stay untouched
  std::vector<float> y(static_cast<size_t>(m * ldy), -12345.0f);
  for (int64_t first = 0; first < m; first += pass) {
    for (int64_t n = 0; n < w.n; n += range) {
      kernel.run({packed.bytes().data(), w.tensor_scale, bias, w.n, w.k,
                  activations.bytes().data() + static_cast<size_t>(first) * row_bytes, std::min(pass, m - first), n,
                  std::min(n + range, w.n), y.data() + first * ldy, ldy});
    }
  }
  std::vector<float> out;
  for (int64_t i = 0; i < m; ++i) {
    out.insert(out.end(), y.begin() + i * ldy, y.begin() + i * ldy + w.n);
    for (int64_t j = w.n; j < ldy; ++j) {
      if (y[static_cast<size_t>(i * ldy + j)] != -12345.0f)
        throw std::runtime_error("wrote behind the last output row");
    }
  }
  return out;
}

}  // namespace halfbyte::testing
