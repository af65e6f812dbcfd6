// y = x W^T for FP4 weights on AVX2: NVFP4 and MXFP4 weights, activations of one, two or three byte pieces.
//
// Bytes moved: the tiles once a pass (fp4_layout.h), whatever the number of tokens; activations stay in the first-level
// cache. A 256-bit vector is 8 output rows; a tile is two of them.
//
// The work of a group of 8 blocks is split in two loops that meet in a small buffer: integer sums of every block first,
// then scales and FP32 sums. Each loop is a stream of short independent chains, which the out-of-order window of a core
// can overlap; in one loop the long chains (12 instructions from load to sum) fill its schedulers: 20.4 cycles a 16x16
// block against 22.3 for 16-bit activations on a Zen 3 (November 2026, bench/ladder/cpu.md).
//
// The multiply-add step is a policy: Maddubs here, Vpdpbusd in linear_fp4_avxvnni.h. Everything else, and every bit of
// the result, is the same.
#pragma once

#include <immintrin.h>

#include "kernels/api.h"
#include "kernels/cpu/fp4_layout.h"

namespace halfbyte::cpu {
namespace avx2 {

// Lookup and mask constants, in registers for the whole run.
struct Decoder {
  __m256i table;    // kDoubledPlus12 twice
  __m256i nibbles;  // 0x0F everywhere

  static HB_ALWAYS_INLINE Decoder make() {
    return {_mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kDoubledPlus12))),
            _mm256_set1_epi8(15)};
  }
  HB_ALWAYS_INLINE __m256i low(__m256i codes) const {
    return _mm256_shuffle_epi8(table, _mm256_and_si256(codes, nibbles));
  }
  HB_ALWAYS_INLINE __m256i high(__m256i codes) const {
    return _mm256_shuffle_epi8(table, _mm256_and_si256(_mm256_srli_epi16(codes, 4), nibbles));
  }
};

// A load that stays one instruction: compilers otherwise fold it into its first use and load again for the second.
HB_ALWAYS_INLINE __m256i load(const uint8_t* p) {
  __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  asm volatile("" : "+x"(v));
  return v;
}

HB_ALWAYS_INLINE __m256i broadcast4(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm256_set1_epi32(four);
}

// 2w + 12 of 8 rows at 16 consecutive k, four k a 32-bit lane.
struct Weights {
  __m256i quad[4];
};

// The codes of a 16-k part of a block, at the first or second 8 rows: two vectors 64 bytes apart.
struct Codes {
  __m256i a, b;
};
HB_ALWAYS_INLINE Codes load_codes(const uint8_t* p) {
  return {load(p), load(p + 64)};
}

HB_ALWAYS_INLINE Weights decode(const Decoder& decoder, const Codes& codes) {
  return {{decoder.low(codes.a), decoder.high(codes.a), decoder.low(codes.b), decoder.high(codes.b)}};
}
HB_ALWAYS_INLINE Weights decode(const Decoder& decoder, const uint8_t* codes) {
  return decode(decoder, load_codes(codes));
}

// The multiply-add step with AVX2's instructions. No int16 saturation: a maddubs lane is at most 24 * 128 * 2 = 6144,
// four are added: 24576 < 32768.
struct Maddubs {
  // Sums of one piece over 16 k: eight int16 pairs, row by row (even and odd halves of a 32-bit lane).
  static HB_ALWAYS_INLINE __m256i dot_piece(const Weights& w, const int8_t* x) {
    const __m256i s01 = _mm256_add_epi16(_mm256_maddubs_epi16(w.quad[0], broadcast4(x)),
                                         _mm256_maddubs_epi16(w.quad[1], broadcast4(x + 4)));
    const __m256i s012 = _mm256_add_epi16(s01, _mm256_maddubs_epi16(w.quad[2], broadcast4(x + 8)));
    return _mm256_add_epi16(s012, _mm256_maddubs_epi16(w.quad[3], broadcast4(x + 12)));
  }

  // Sum over 16 k of (2w + 12) * value, exact in int32. x: [kPieces][16], most significant piece first.
  template <int kPieces>
  static HB_ALWAYS_INLINE __m256i dot16(const Weights& w, const int8_t* x) {
    const __m256i one = _mm256_set1_epi16(1), shift8 = _mm256_set1_epi16(256);
    if constexpr (kPieces == 1) {
      return _mm256_madd_epi16(dot_piece(w, x), one);
    } else {
      const int8_t* low_pieces = x + 16 * (kPieces - 2);
      const __m256i high = _mm256_madd_epi16(dot_piece(w, low_pieces), shift8);
      const __m256i low = _mm256_madd_epi16(dot_piece(w, low_pieces + 16), one);
      const __m256i sum = _mm256_add_epi32(high, low);
      if constexpr (kPieces == 2) return sum;
      return _mm256_add_epi32(sum, _mm256_slli_epi32(_mm256_madd_epi16(dot_piece(w, x), one), 16));
    }
  }
};

// The scales of 8 rows of one block as FP32.
template <class L>
HB_ALWAYS_INLINE __m256 block_scales(const uint8_t* bytes) {
  const __m256i wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes)));
  if constexpr (L::kNvfp4) {
    // 3 fraction bits below the exponent; + (127 - 9) << 23 makes it FP32's.
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(wide, 20), _mm256_set1_epi32(118 << 23)));
  } else {
    // Byte 0 is 2^-127, the subnormal 0x00400000.
    return _mm256_castsi256_ps(_mm256_max_epi32(_mm256_slli_epi32(wide, 23), _mm256_set1_epi32(0x00400000)));
  }
}

// Step 2 of the contract: t = d * (sw * sx).
template <class L, int kPieces>
HB_ALWAYS_INLINE __m256 block_term(__m256i sum, __m256 sw, int32_t correction, float sx) {
  __m256 d = _mm256_cvtepi32_ps(_mm256_add_epi32(sum, _mm256_set1_epi32(correction)));
  // NVFP4: the unit lies in sx, which is exact there; two E8M0 scales may leave FP32's range, so it stays with d.
  if constexpr (!L::kNvfp4) d = _mm256_mul_ps(d, _mm256_set1_ps(kUnit<kPieces>));
  return _mm256_mul_ps(d, _mm256_mul_ps(sw, _mm256_set1_ps(sx)));
}

// Step 3: the terms of a group as ((t0+t1)+(t2+t3))+((t4+t5)+(t6+t7)); missing ones are +0.
HB_ALWAYS_INLINE __m256 tree8(const __m256 (&t)[8]) {
  return _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(t[0], t[1]), _mm256_add_ps(t[2], t[3])),
                       _mm256_add_ps(_mm256_add_ps(t[4], t[5]), _mm256_add_ps(t[6], t[7])));
}

// Tells the compiler that the buffer is written and read here, so that it keeps the two loops apart.
HB_ALWAYS_INLINE void settle(void* buffer) {
  asm volatile("" : : "r"(buffer) : "memory");
}

inline constexpr int64_t kMaxTokens = 8;
// How far ahead of their use the tiles are asked for: two groups. 1 to 9 KiB measured alike; none is 20% slower.
inline constexpr int64_t kPrefetchBytes = 2304;

template <class L, int kPieces, class MultiplyAdd = Maddubs>
struct LinearFp4 {
  using Tiles = Fp4Tiles<L>;
  using Row = IntRow<L, kPieces>;
  static constexpr int64_t kParts = L::kBlock / 16;  // 16-k parts of a block

  static HB_ALWAYS_INLINE __m256i dot16(const Weights& w, const int8_t* x) {
    return MultiplyAdd::template dot16<kPieces>(w, x);
  }

  // The sums of a block's parts, for one half of the rows.
  static HB_ALWAYS_INLINE __m256i block_sum(const __m256i (&parts)[kParts][2], int64_t half) {
    if constexpr (kParts == 1)
      return parts[0][half];
    else
      return _mm256_add_epi32(parts[0][half], parts[1][half]);
  }

  static HB_ALWAYS_INLINE void prefetch_group(const uint8_t* group, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i += 64) {
      asm volatile("prefetcht0 %0" : : "m"(group[kPrefetchBytes + i]));
    }
  }

  // One group of `count` blocks for one token. kCount = 8, or 0 for a last group of fewer.
  template <int64_t kCount>
  static HB_ALWAYS_INLINE void group_one_token(const Decoder& decoder, const uint8_t* group, const Row& x,
                                               int64_t first, int64_t last_count, __m256 (&acc)[2]) {
    const int64_t count = kCount != 0 ? kCount : last_count;
    const uint8_t* scales = group + count * Tiles::kBlockCodes;
    alignas(32) __m256i sums[8][kParts][2];
    __m256 t0[8], t1[8];
    Codes next = load_codes(group);
    for_each_of_group([&](auto i) HB_INLINE_LAMBDA {
      if (i >= count) return;
      prefetch_group(group, i * Tiles::kBlockBytes / 64 * 64, (i + 1) * Tiles::kBlockBytes / 64 * 64);
      const uint8_t* codes = group + i * Tiles::kBlockCodes;
      const int8_t* pieces = x.pieces + (first + i) * L::kBlock * kPieces;
      for (int64_t part = 0; part < kParts; ++part, codes += 128, pieces += 16 * kPieces) {
        Codes now = next;
        next = load_codes(codes + 32);
        sums[i][part][0] = dot16(decode(decoder, now), pieces);
        now = next;
        next = load_codes(codes + 128);  // the last of a group reads its scales, and a line more: see Buffer
        sums[i][part][1] = dot16(decode(decoder, now), pieces);
      }
    });
    settle(sums);
    for_each_of_group([&](auto i) HB_INLINE_LAMBDA {
      if (i >= count) {
        t0[i] = t1[i] = _mm256_setzero_ps();
        return;
      }
      const uint8_t* s = scales + i * kTileRows;
      t0[i] = block_term<L, kPieces>(block_sum(sums[i], 0), block_scales<L>(s), x.correction[first + i],
                                     x.scale[first + i]);
      t1[i] = block_term<L, kPieces>(block_sum(sums[i], 1), block_scales<L>(s + 8), x.correction[first + i],
                                     x.scale[first + i]);
    });
    acc[0] = _mm256_add_ps(acc[0], tree8(t0));
    acc[1] = _mm256_add_ps(acc[1], tree8(t1));
  }

  // The same for several tokens: codes and scales are decoded once.
  template <int64_t kCount>
  static HB_ALWAYS_INLINE void group_tokens(const Decoder& decoder, const uint8_t* group, const Row* x, int64_t tokens,
                                            int64_t first, int64_t last_count, float (*acc)[16]) {
    const int64_t count = kCount != 0 ? kCount : last_count;
    alignas(32) __m256i sums[kMaxTokens][8][kParts][2];
    alignas(32) __m256 sw[8][2];
    for (int64_t i = 0; i < count; ++i) {
      prefetch_group(group, i * Tiles::kBlockBytes / 64 * 64, (i + 1) * Tiles::kBlockBytes / 64 * 64);
      const uint8_t* s = group + count * Tiles::kBlockCodes + i * kTileRows;
      sw[i][0] = block_scales<L>(s);
      sw[i][1] = block_scales<L>(s + 8);
      for (int64_t part = 0; part < kParts; ++part) {
        const uint8_t* codes = group + i * Tiles::kBlockCodes + part * 128;
        const Weights w0 = decode(decoder, codes), w1 = decode(decoder, codes + 32);
        for (int64_t m = 0; m < tokens; ++m) {
          const int8_t* pieces = x[m].pieces + ((first + i) * kParts + part) * 16 * kPieces;
          sums[m][i][part][0] = dot16(w0, pieces);
          sums[m][i][part][1] = dot16(w1, pieces);
        }
      }
    }
    settle(sums);
    for (int64_t m = 0; m < tokens; ++m) {
      for (int64_t half = 0; half < 2; ++half) {
        __m256 t[8];
        for_each_of_group([&](auto i) HB_INLINE_LAMBDA {
          t[i] = i < count ? block_term<L, kPieces>(block_sum(sums[m][i], half), sw[i][half],
                                                    x[m].correction[first + i], x[m].scale[first + i])
                           : _mm256_setzero_ps();
        });
        float* a = acc[m] + 8 * half;
        _mm256_store_ps(a, _mm256_add_ps(_mm256_load_ps(a), tree8(t)));
      }
    }
  }

  // acc[m][r]: the sums over k of a tile's 16 rows.
  static HB_ALWAYS_INLINE void tile_one_token(const Decoder& decoder, const uint8_t* tile, const Row& x, int64_t blocks,
                                              float (*out)[16]) {
    __m256 acc[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
    int64_t first = 0;
    for (; first + kGroupBlocks <= blocks; first += kGroupBlocks, tile += Tiles::kGroupBytes) {
      group_one_token<kGroupBlocks>(decoder, tile, x, first, 0, acc);
    }
    if (first < blocks) group_one_token<0>(decoder, tile, x, first, blocks - first, acc);
    _mm256_store_ps(out[0], acc[0]);
    _mm256_store_ps(out[0] + 8, acc[1]);
  }

  static HB_ALWAYS_INLINE void tile_tokens(const Decoder& decoder, const uint8_t* tile, const Row* x, int64_t tokens,
                                           int64_t blocks, float (*out)[16]) {
    for (int64_t m = 0; m < tokens; ++m) {
      _mm256_store_ps(out[m], _mm256_setzero_ps());
      _mm256_store_ps(out[m] + 8, _mm256_setzero_ps());
    }
    int64_t first = 0;
    for (; first + kGroupBlocks <= blocks; first += kGroupBlocks, tile += Tiles::kGroupBytes) {
      group_tokens<kGroupBlocks>(decoder, tile, x, tokens, first, 0, out);
    }
    if (first < blocks) group_tokens<0>(decoder, tile, x, tokens, first, blocks - first, out);
  }

  static void run(const LinearCall& call) {
    const Decoder decoder = Decoder::make();
    const int64_t blocks = Tiles::blocks(call.k), tile_bytes = Tiles::tile_bytes(call.k),
                  row_bytes = Row::bytes(call.k);
    Row x[kMaxTokens];
    for (int64_t m = 0; m < call.rows; ++m) x[m] = Row::at(call.activations + m * row_bytes, call.k);
    alignas(32) float acc[kMaxTokens][16];
    for (int64_t first = call.n_begin; first < call.n_end; first += kTileRows) {
      const auto* tile = reinterpret_cast<const uint8_t*>(call.packed) + first / kTileRows * tile_bytes;
      if (call.rows == 1) {
        tile_one_token(decoder, tile, x[0], blocks, acc);
      } else {
        tile_tokens(decoder, tile, x, call.rows, blocks, acc);
      }
      const int64_t here = first + kTileRows <= call.n ? kTileRows : call.n - first;
      for (int64_t m = 0; m < call.rows; ++m) {
        const float scale = call.tensor_scale * *x[m].alpha;
        float* out = call.y + m * call.ldy + first;
        for (int64_t r = 0; r < here; ++r) out[r] = acc[m][r] * scale;
        if (call.bias != nullptr) {
          for (int64_t r = 0; r < here; ++r) out[r] += call.bias[first + r];
        }
      }
    }
  }
};

}  // namespace avx2
}  // namespace halfbyte::cpu
