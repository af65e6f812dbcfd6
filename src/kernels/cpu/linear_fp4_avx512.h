// y = x W^T for FP4 weights on AVX-512 with VNNI: the sums of linear_fp4_avx2.h on 16 lanes, so a tile is one vector.
//
// Bytes moved: the tiles once a pass (fp4_layout.h), whatever the number of tokens. vpdpbusd adds four products of
// unsigned by signed bytes to an int32 lane without saturation; the correction is where a block's sum starts. A 16x16
// block costs about 27 vector instructions with 16-bit activations.
#pragma once

#include <immintrin.h>

#include "kernels/api.h"
#include "kernels/cpu/fp4_layout.h"

namespace halfbyte::cpu::avx512 {

inline constexpr int64_t kMaxTokens = 8;

// A token alone waits for memory only: its tiles are read as two streams, block by block in turn, each asked for twice,
// first into the second-level cache and then into the first. 10 to 17% faster than one stream and one prefetch (Xeon
// with AMX, 2 threads, November 2026; bench/results/cpu_linears_2026-11-29.md).
inline constexpr int kStreams = 2;
inline constexpr int64_t kNearBytes = 1152, kFarBytes = 4608;
inline constexpr int64_t kPrefetchBytes = 4096;  // several tokens

struct Decoder {
  __m512i table;    // kDoubledPlus12 four times
  __m512i nibbles;  // 0x0F everywhere

  static HB_ALWAYS_INLINE Decoder make() {
    return {_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(kDoubledPlus12))),
            _mm512_set1_epi8(15)};
  }
  HB_ALWAYS_INLINE __m512i low(__m512i codes) const {
    return _mm512_shuffle_epi8(table, _mm512_and_si512(codes, nibbles));
  }
  HB_ALWAYS_INLINE __m512i high(__m512i codes) const {
    return _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(codes, 4), nibbles));
  }
};

// 2w + 12 of 16 rows at 16 consecutive k, four k a 32-bit lane.
struct Weights {
  __m512i quad[4];
};

HB_ALWAYS_INLINE Weights decode(const Decoder& decoder, const uint8_t* codes) {
  const __m512i a = _mm512_loadu_si512(codes), b = _mm512_loadu_si512(codes + 64);
  return {{decoder.low(a), decoder.high(a), decoder.low(b), decoder.high(b)}};
}

HB_ALWAYS_INLINE __m512i broadcast4(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}

// start + the sum of one piece over 16 k.
HB_ALWAYS_INLINE __m512i dot_piece(__m512i start, const Weights& w, const int8_t* x) {
  __m512i sum = _mm512_dpbusd_epi32(start, w.quad[0], broadcast4(x));
  sum = _mm512_dpbusd_epi32(sum, w.quad[1], broadcast4(x + 4));
  sum = _mm512_dpbusd_epi32(sum, w.quad[2], broadcast4(x + 8));
  return _mm512_dpbusd_epi32(sum, w.quad[3], broadcast4(x + 12));
}

// start + the sum over 16 k of (2w + 12) * value, exact in int32. x: [kPieces][16], most significant piece first.
template <int kPieces>
HB_ALWAYS_INLINE __m512i dot16(__m512i start, const Weights& w, const int8_t* x) {
  if constexpr (kPieces == 1) {
    return dot_piece(start, w, x);
  } else {
    const __m512i zero = _mm512_setzero_si512();
    __m512i high = dot_piece(zero, w, x + 16 * (kPieces - 2));
    if constexpr (kPieces == 3) high = _mm512_add_epi32(high, _mm512_slli_epi32(dot_piece(zero, w, x), 8));
    return _mm512_add_epi32(dot_piece(start, w, x + 16 * (kPieces - 1)), _mm512_slli_epi32(high, 8));
  }
}

// The scales of a block's 16 rows as FP32.
template <class L>
HB_ALWAYS_INLINE __m512 block_scales(const uint8_t* bytes) {
  const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes)));
  if constexpr (L::kNvfp4) {
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(wide, 20), _mm512_set1_epi32(118 << 23)));
  } else {
    return _mm512_castsi512_ps(_mm512_max_epi32(_mm512_slli_epi32(wide, 23), _mm512_set1_epi32(0x00400000)));
  }
}

template <class L, int kPieces>
struct LinearFp4 {
  using Tiles = Fp4Tiles<L>;
  using Row = IntRow<L, kPieces>;
  static constexpr int64_t kParts = L::kBlock / 16;
  using Block = Weights[kParts];

  // Steps 1 and 2 of the contract for one block and token: t = d * (sw * sx).
  static HB_ALWAYS_INLINE __m512 block_term(const Block& w, __m512 sw, const Row& x, int64_t block) {
    const int8_t* pieces = x.pieces + block * L::kBlock * kPieces;
    __m512i sum = dot16<kPieces>(_mm512_set1_epi32(x.correction[block]), w[0], pieces);
    if constexpr (kParts == 2) sum = dot16<kPieces>(sum, w[1], pieces + 16 * kPieces);
    __m512 d = _mm512_cvtepi32_ps(sum);
    if constexpr (!L::kNvfp4) d = _mm512_mul_ps(d, _mm512_set1_ps(kUnit<kPieces>));
    return _mm512_mul_ps(d, _mm512_mul_ps(sw, _mm512_set1_ps(x.scale[block])));
  }

  // Step 3: the terms of a group as ((t0+t1)+(t2+t3))+((t4+t5)+(t6+t7)).
  static HB_ALWAYS_INLINE __m512 tree8(const __m512 (&t)[8]) {
    return _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(t[0], t[1]), _mm512_add_ps(t[2], t[3])),
                         _mm512_add_ps(_mm512_add_ps(t[4], t[5]), _mm512_add_ps(t[6], t[7])));
  }

  // One group of `count` blocks for all tokens. kCount = 8, or 0 for a last group of fewer; kTokens = 1, or 0 for
  // `tokens`.
  template <int64_t kCount, int64_t kTokens>
  static HB_ALWAYS_INLINE void group(const Decoder& decoder, const uint8_t* at, const Row* x, int64_t tokens_if_0,
                                     int64_t first, int64_t count_if_0, __m512* acc) {
    const int64_t count = kCount != 0 ? kCount : count_if_0, tokens = kTokens != 0 ? kTokens : tokens_if_0;
    __m512 t[kTokens != 0 ? kTokens : kMaxTokens][8];
    for_each_of_group([&](auto i) HB_INLINE_LAMBDA {
      if (i >= count) {
        for (int64_t m = 0; m < tokens; ++m) t[m][i] = _mm512_setzero_ps();
        return;
      }
      for (int64_t line = i * Tiles::kBlockBytes / 64; line < (i + 1) * Tiles::kBlockBytes / 64; ++line) {
        _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes + line * 64), _MM_HINT_T0);
      }
      Block w;
      for (int64_t part = 0; part < kParts; ++part) w[part] = decode(decoder, at + i * Tiles::kBlockCodes + part * 128);
      const __m512 sw = block_scales<L>(at + count * Tiles::kBlockCodes + i * kTileRows);
      for (int64_t m = 0; m < tokens; ++m) t[m][i] = block_term(w, sw, x[m], first + i);
    });
    for (int64_t m = 0; m < tokens; ++m) acc[m] = _mm512_add_ps(acc[m], tree8(t[m]));
  }

  // One group of each of kStreams tiles for one token.
  template <int64_t kCount>
  static HB_ALWAYS_INLINE void group_of_streams(const Decoder& decoder, const uint8_t* const (&at)[kStreams],
                                                const Row& x, int64_t first, int64_t count_if_0,
                                                __m512 (&acc)[kStreams]) {
    const int64_t count = kCount != 0 ? kCount : count_if_0;
    __m512 t[kStreams][8];
    for_each_of_group([&](auto i) HB_INLINE_LAMBDA {
      for (int s = 0; s < kStreams; ++s) {
        if (i >= count) {
          t[s][i] = _mm512_setzero_ps();
          continue;
        }
        for (int64_t line = i * Tiles::kBlockBytes / 64; line < (i + 1) * Tiles::kBlockBytes / 64; ++line) {
          const char* ahead = reinterpret_cast<const char*>(at[s]) + line * 64;
          _mm_prefetch(ahead + kNearBytes, _MM_HINT_T0);
          _mm_prefetch(ahead + kFarBytes, _MM_HINT_T1);
        }
        Block w;
        for (int64_t part = 0; part < kParts; ++part) {
          w[part] = decode(decoder, at[s] + i * Tiles::kBlockCodes + part * 128);
        }
        const __m512 sw = block_scales<L>(at[s] + count * Tiles::kBlockCodes + i * kTileRows);
        t[s][i] = block_term(w, sw, x, first + i);
      }
    });
    for (int s = 0; s < kStreams; ++s) acc[s] = _mm512_add_ps(acc[s], tree8(t[s]));
  }

  static HB_ALWAYS_INLINE void tiles_of_streams(const Decoder& decoder, const uint8_t* (&at)[kStreams], const Row& x,
                                                int64_t blocks, __m512 (&acc)[kStreams]) {
    for (__m512& a : acc) a = _mm512_setzero_ps();
    int64_t first = 0;
    for (; first + kGroupBlocks <= blocks; first += kGroupBlocks) {
      group_of_streams<kGroupBlocks>(decoder, at, x, first, 0, acc);
      for (const uint8_t*& a : at) a += Tiles::kGroupBytes;
    }
    if (first < blocks) group_of_streams<0>(decoder, at, x, first, blocks - first, acc);
  }

  template <int64_t kTokens>
  static HB_ALWAYS_INLINE void tile(const Decoder& decoder, const uint8_t* at, const Row* x, int64_t tokens,
                                    int64_t blocks, __m512* acc) {
    for (int64_t m = 0; m < tokens; ++m) acc[m] = _mm512_setzero_ps();
    int64_t first = 0;
    for (; first + kGroupBlocks <= blocks; first += kGroupBlocks, at += Tiles::kGroupBytes) {
      group<kGroupBlocks, kTokens>(decoder, at, x, tokens, first, 0, acc);
    }
    if (first < blocks) group<0, kTokens>(decoder, at, x, tokens, first, blocks - first, acc);
  }

  // A tile's sums of one token -> y, which is at the tile's first output.
  static HB_ALWAYS_INLINE void store(__m512 acc, float scale, const float* bias, int64_t left, float* y) {
    const auto mask = static_cast<__mmask16>(left >= kTileRows ? 0xFFFF : (1 << left) - 1);
    __m512 out = _mm512_mul_ps(acc, _mm512_set1_ps(scale));
    if (bias != nullptr) out = _mm512_add_ps(out, _mm512_maskz_loadu_ps(mask, bias));
    _mm512_mask_storeu_ps(y, mask, out);
  }

  static void run(const LinearCall& call) { run_rows(call, Row::bytes(call.k)); }

  // The same for rows that lie `row_bytes` apart.
  static HB_ALWAYS_INLINE void run_rows(const LinearCall& call, int64_t row_bytes) {
    const Decoder decoder = Decoder::make();
    const int64_t blocks = Tiles::blocks(call.k), tile_bytes = Tiles::tile_bytes(call.k);
    Row x[kMaxTokens];
    for (int64_t m = 0; m < call.rows; ++m) x[m] = Row::at(call.activations + m * row_bytes, call.k);
    const auto tile_at = [&](int64_t first) HB_INLINE_LAMBDA {
      return reinterpret_cast<const uint8_t*>(call.packed) + first / kTileRows * tile_bytes;
    };
    const auto store_row = [&](int64_t m, __m512 acc, int64_t first) HB_INLINE_LAMBDA {
      store(acc, call.tensor_scale * *x[m].alpha, call.bias != nullptr ? call.bias + first : nullptr, call.n - first,
            call.y + m * call.ldy + first);
    };
    int64_t first = call.n_begin;
    if (call.rows == 1) {
      // Stream s has the tiles from s parts behind the first on.
      const int64_t part = (call.n_end - call.n_begin + kTileRows - 1) / kTileRows / kStreams * kTileRows;
      for (; first < call.n_begin + part; first += kTileRows) {
        const uint8_t* at[kStreams];
        for (int s = 0; s < kStreams; ++s) at[s] = tile_at(first + s * part);
        __m512 acc[kStreams];
        tiles_of_streams(decoder, at, x[0], blocks, acc);
        for (int s = 0; s < kStreams; ++s) store_row(0, acc[s], first + s * part);
      }
      first = call.n_begin + kStreams * part;
    }
    __m512 acc[kMaxTokens];
    for (; first < call.n_end; first += kTileRows) {
      if (call.rows == 1) {
        tile<1>(decoder, tile_at(first), x, 1, blocks, acc);
      } else {
        tile<0>(decoder, tile_at(first), x, call.rows, blocks, acc);
      }
      for (int64_t m = 0; m < call.rows; ++m) store_row(m, acc[m], first);
    }
  }
};

}  // namespace halfbyte::cpu::avx512
