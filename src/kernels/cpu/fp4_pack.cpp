#include "kernels/cpu/fp4_pack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/e4m3.h"
#include "formats/e8m0.h"
#include "kernels/cpu/fp4_layout.h"

namespace halfbyte::cpu {
namespace {

// A stored scale byte -> the packed byte, what to flip in the codes (0x88 a byte for a negative scale) and whether the
// codes become zero. NaN scales are refused at load and do not get here.
struct ScaleEntry {
  uint8_t packed;
  uint8_t flip;
  bool zero;
};

constexpr std::array<ScaleEntry, 256> make_nvfp4_scales() {
  std::array<ScaleEntry, 256> table{};
  for (int code = 0; code < 256; ++code) {
    const float value = magnitude(E4M3::decode(static_cast<uint8_t>(code)));
    ScaleEntry& e = table[static_cast<size_t>(code)];
    e.flip = code >= 128 ? 0x88 : 0;
    e.zero = value == 0.0f;
    if (e.zero || is_nan(value)) {
      e.packed = 9 << 3;
    } else {
      e.packed = static_cast<uint8_t>((floor_log2(value) + 9) << 3 | significand_fraction(value) >> 20);
    }
  }
  return table;
}
constexpr std::array<ScaleEntry, 256> kNvfp4Scales = make_nvfp4_scales();

// Eight codes of a row, k ascending in nibbles (as stored) -> four bytes, each with code i and code i + 4.
uint32_t interleave(uint32_t stored) {
  const uint32_t low = stored & 0x0F0F0F0Fu, high = (stored >> 4) & 0x0F0F0F0Fu;  // even codes, odd codes
  const uint32_t first = (low & 0xFFu) | (high & 0xFFu) << 8 | (low & 0xFF00u) << 8 | (high & 0xFF00u) << 16;
  const uint32_t second = (low >> 16 & 0xFFu) | (high >> 16 & 0xFFu) << 8 | (low >> 24) << 16 | (high >> 24) << 24;
  return first | second << 4;
}

// The scale byte of block b of a row of the tile.
template <class L>
uint8_t* scale_of(uint8_t* tile, int64_t b, int64_t blocks, int64_t row_in_tile) {
  const int64_t group = b / kGroupBlocks;
  const int64_t blocks_here = std::min(kGroupBlocks, blocks - group * kGroupBlocks);
  return tile + group * Fp4Tiles<L>::kGroupBytes + blocks_here * Fp4Tiles<L>::kBlockCodes +
         b % kGroupBlocks * kTileRows + row_in_tile;
}

template <class L>
void pack_row(const uint8_t* codes, const uint8_t* scales, int64_t row_in_tile, int64_t blocks, uint8_t* tile) {
  using Tiles = Fp4Tiles<L>;
  for (int64_t b = 0; b < blocks; ++b) {
    uint8_t* block_codes =
        tile + b / kGroupBlocks * Tiles::kGroupBytes + b % kGroupBlocks * Tiles::kBlockCodes + 4 * row_in_tile;
    const uint8_t* stored = codes + b * L::kBlock / 2;

    ScaleEntry scale{scales[b], 0, false};
    if constexpr (L::kNvfp4) {
      scale = kNvfp4Scales[scales[b]];
    } else {
      // Our writers give a zero block 2^-127: an FP32 subnormal, slow on some machines, and without effect.
      const bool zero =
          scales[b] == 0 && std::all_of(stored, stored + L::kBlock / 2, [](uint8_t c) { return (c & 0x77) == 0; });
      if (zero) scale.packed = E8M0::kOne;
    }
    for (int64_t v = 0; v < L::kBlock / 8; ++v) {
      uint32_t eight;
      std::memcpy(&eight, stored + 4 * v, 4);
      eight = scale.zero ? 0 : interleave(eight ^ scale.flip * 0x01010101u);
      std::memcpy(block_codes + 64 * v, &eight, 4);
    }
    *scale_of<L>(tile, b, blocks, row_in_tile) = scale.packed;
  }
}

template <class L>
size_t packed_bytes(int64_t n, int64_t k) {
  return static_cast<size_t>(Fp4Tiles<L>::tiles(n) * Fp4Tiles<L>::tile_bytes(k));
}

template <class L>
void pack(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed) {
  const int64_t blocks = Fp4Tiles<L>::blocks(w.k), row_codes = blocks * L::kBlock / 2;
  const int64_t tile_bytes = Fp4Tiles<L>::tile_bytes(w.k);
  const uint8_t one = L::kNvfp4 ? kNvfp4Scales[E4M3::kOne].packed : E8M0::kOne;
  for (int64_t first = n_begin; first < n_end; first += kTileRows) {
    auto* tile = reinterpret_cast<uint8_t*>(packed) + first / kTileRows * tile_bytes;
    std::memset(tile, 0, static_cast<size_t>(tile_bytes));
    for (int64_t r = 0; r < kTileRows; ++r) {
      const int64_t row = first + r;
      if (row < w.n) {
        pack_row<L>(w.codes.as<uint8_t>() + row * row_codes, w.block_scales.as<uint8_t>() + row * blocks, r, blocks,
                    tile);
        continue;
      }
      // Zero codes are there already; the scale must be a normal number.
      for (int64_t b = 0; b < blocks; ++b) *scale_of<L>(tile, b, blocks, r) = one;
    }
  }
}

}  // namespace

size_t nvfp4_packed_bytes(int64_t n, int64_t k) {
  return packed_bytes<Nvfp4Layout>(n, k);
}
size_t mxfp4_packed_bytes(int64_t n, int64_t k) {
  return packed_bytes<Mxfp4Layout>(n, k);
}
void pack_nvfp4(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed) {
  pack<Nvfp4Layout>(w, n_begin, n_end, packed);
}
void pack_mxfp4(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed) {
  pack<Mxfp4Layout>(w, n_begin, n_end, packed);
}

}  // namespace halfbyte::cpu
