// How BF16 weights lie in device memory, for the kernels that read them: [round of tiles][part of 1,024 K][thread block of
// decode's][16 rows][the part's K], the last part padded to 64 K, tiles to 16 rows. The 16-byte chunk c of a row lies at
// c ^ 4 (row mod 2).
#pragma once

#include <cstdint>

namespace halfbyte::cuda {

inline constexpr int kBf16TileRows = 16;
inline constexpr int kBf16PartK = 1024;
inline constexpr int kBf16PadK = 64;

constexpr int bf16_parts(int64_t k) {
  return static_cast<int>((k + kBf16PartK - 1) / kBf16PartK);
}
constexpr int bf16_last_k(int64_t k) {
  return static_cast<int>((k - (bf16_parts(k) - 1) * kBf16PartK + kBf16PadK - 1) / kBf16PadK * kBf16PadK);
}

struct Bf16Layout {
  int blocks = 1;  // of decode's grid
  int parts = 0, last_k = 0;
  int tiles = 0;  // of 16 rows
};

}  // namespace halfbyte::cuda
