#include "kernels/cpu/fp4_pack.h"

#include <emmintrin.h>

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

// 16 codes of a row, k ascending in nibbles (as stored), flipped -> the words of k 0..7 and of 8..15: each four bytes that
// hold code i and code i + 4. SSE2 is part of every x86-64.
struct TwoWords {
  uint32_t first, second;
};
TwoWords interleave_16(const uint8_t* stored, uint8_t flip) {
  const __m128i nibble = _mm_set1_epi8(0x0F);
  const __m128i codes =
      _mm_xor_si128(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(stored)), _mm_set1_epi8(static_cast<char>(flip)));
  // A byte a code, in order; then a 64-bit lane's upper four move into the high nibbles of its lower four.
  const __m128i bytes =
      _mm_unpacklo_epi8(_mm_and_si128(codes, nibble), _mm_and_si128(_mm_srli_epi16(codes, 4), nibble));
  const __m128i words = _mm_or_si128(bytes, _mm_srli_epi64(bytes, 28));
  return {static_cast<uint32_t>(_mm_cvtsi128_si32(words)),
          static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_unpackhi_epi64(words, words)))};
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
    for (int64_t v = 0; v < L::kBlock / 8; v += 2) {
      const TwoWords words = scale.zero ? TwoWords{0, 0} : interleave_16(stored + 4 * v, scale.flip);
      std::memcpy(block_codes + 64 * v, &words.first, 4);
      std::memcpy(block_codes + 64 * (v + 1), &words.second, 4);
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
