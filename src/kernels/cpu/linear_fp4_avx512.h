// y = x W^T for FP4 weights on AVX-512 with VNNI: the sums of linear_fp4_avx2.h on 16 lanes, so a tile is one vector.
//
// Bytes moved: the tiles once a pass (fp4_layout.h), whatever the number of tokens. vpdpbusd adds four products of
// unsigned by signed bytes to an int32 lane without saturation; the correction is where a block's sum starts. A 16x16
// block costs about 27 vector instructions with 16-bit activations. Several tokens run a few at a time over each group of
// blocks, which the first-level cache holds: as many as keep their sums in registers, because what goes through memory
// instead costs more than decoding the group again.
#pragma once

#include <immintrin.h>

#include "kernels/api.h"
#include "kernels/cpu/fp4_layout.h"
#include "kernels/cpu/outputs_avx512.h"

namespace halfbyte::cpu::avx512 {

inline constexpr int64_t kMaxTokens = 16;  // a pass
inline constexpr int kTokensAtOnce = 4;    // whose sums are in registers

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

// sum + the products of four k with the four bytes at x, which every lane reads. The broadcast belongs to the instruction;
// GCC 12 and 13 make two of it, which costs a fifth of the time of 8 tokens.
HB_ALWAYS_INLINE __m512i dot4(__m512i sum, __m512i w, const int8_t* x) {
#if defined(__GNUC__) && !defined(__clang__) && defined(__AVX512VNNI__)
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(w), "m"(*reinterpret_cast<const int8_t(*)[4]>(x)));
  return sum;
#else
  int32_t four;
  __builtin_memcpy(&four, x, 4);
  return _mm512_dpbusd_epi32(sum, w, _mm512_set1_epi32(four));
#endif
}

// dots[m] += the sum over 16 k of (2w + 12) * value for the token whose pieces are at x[m] ([kPieces][16], most significant
// first), exact in int32. Sums that do not wait for each other take turns.
template <int kPieces, int kTokens>
HB_ALWAYS_INLINE void dot16(__m512i (&dots)[kTokens], const Weights& w, const int8_t* const (&x)[kTokens]) {
  __m512i high[kTokens];
  for (int piece = 0; piece + 1 < kPieces; ++piece) {
    __m512i sums[kTokens];
    for (__m512i& sum : sums) sum = _mm512_setzero_si512();
    for (int quad = 0; quad < 4; ++quad) {
      for (int m = 0; m < kTokens; ++m) sums[m] = dot4(sums[m], w.quad[quad], x[m] + piece * 16 + quad * 4);
    }
    for (int m = 0; m < kTokens; ++m) {
      high[m] = piece == 0 ? sums[m] : _mm512_add_epi32(sums[m], _mm512_slli_epi32(high[m], 8));
    }
  }
  for (int quad = 0; quad < 4; ++quad) {
    for (int m = 0; m < kTokens; ++m) dots[m] = dot4(dots[m], w.quad[quad], x[m] + (kPieces - 1) * 16 + quad * 4);
  }
  if constexpr (kPieces > 1) {
    for (int m = 0; m < kTokens; ++m) dots[m] = _mm512_add_epi32(dots[m], _mm512_slli_epi32(high[m], 8));
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
    __m512i dots[1] = {_mm512_set1_epi32(x.correction[block])};
    for (int64_t part = 0; part < kParts; ++part) dot16<kPieces, 1>(dots, w[part], {pieces + part * 16 * kPieces});
    __m512 d = _mm512_cvtepi32_ps(dots[0]);
    if constexpr (!L::kNvfp4) d = _mm512_mul_ps(d, _mm512_set1_ps(kUnit<kPieces>));
    return _mm512_mul_ps(d, _mm512_mul_ps(sw, _mm512_set1_ps(x.scale[block])));
  }

  // Step 3: the terms of a group as ((t0+t1)+(t2+t3))+((t4+t5)+(t6+t7)).
  static HB_ALWAYS_INLINE __m512 tree8(const __m512 (&t)[8]) {
    return _mm512_add_ps(_mm512_add_ps(_mm512_add_ps(t[0], t[1]), _mm512_add_ps(t[2], t[3])),
                         _mm512_add_ps(_mm512_add_ps(t[4], t[5]), _mm512_add_ps(t[6], t[7])));
  }

  // Steps 2 and 3 of the contract, block by block, in the order of tree8 with at most three sums at hand.
  struct Tree {
    // NVFP4 W4A4: |d| <= 2304 in quarters has 12 bits, either scale 4, so a term is exact and an `fma` rounds as the sum does.
    static constexpr bool kExactTerms = L::kNvfp4 && kPieces == 1;
    __m512 sum[3];

    // Block i: its dot and the product of its scales.
    template <int64_t i>
    HB_ALWAYS_INLINE void add(__m512 d, __m512 scale) {
      __m512& pair = sum[i < 2 ? 0 : i < 6 ? 1 : 2];
      if constexpr (i % 2 == 0) {
        pair = _mm512_mul_ps(d, scale);
      } else if constexpr (kExactTerms) {
        pair = _mm512_fmadd_ps(d, scale, pair);
      } else {
        pair = _mm512_add_ps(pair, _mm512_mul_ps(d, scale));
      }
      if constexpr (i == 7) sum[1] = _mm512_add_ps(sum[1], sum[2]);
      if constexpr (i % 4 == 3) sum[0] = _mm512_add_ps(sum[0], sum[1]);
    }
  };

  // What a group reads of one token.
  struct Token {
    const int8_t* pieces;
    const std::byte* corrections;

    static HB_ALWAYS_INLINE Token at(const Row& row, int64_t block) {
      return {row.pieces + block * L::kBlock * kPieces, reinterpret_cast<const std::byte*>(row.correction + block)};
    }
  };

  // One group of `count` blocks for kTokens tokens. kCount = 8, or 0 for a last group of fewer. scales: from a token's
  // corrections to its scales, bytes.
  template <int64_t kCount, int kTokens>
  static HB_ALWAYS_INLINE void group(const Decoder& decoder, const uint8_t* at, const Token* tokens, int64_t scales,
                                     int64_t count_if_0, __m512* acc) {
    const int64_t count = kCount != 0 ? kCount : count_if_0;
    Token token[kTokens];
    Tree tree[kTokens];
    for (int m = 0; m < kTokens; ++m) token[m] = tokens[m];
    for_each_of_group([&](auto i) HB_INLINE_LAMBDA {
      if (i >= count) {
        for (int m = 0; m < kTokens; ++m) tree[m].template add<i>(_mm512_setzero_ps(), _mm512_setzero_ps());
        return;
      }
      Block w;
      for (int64_t part = 0; part < kParts; ++part) w[part] = decode(decoder, at + i * Tiles::kBlockCodes + part * 128);
      const __m512 sw = block_scales<L>(at + count * Tiles::kBlockCodes + i * kTileRows);
      __m512i dots[kTokens];
      for (int m = 0; m < kTokens; ++m) {
        dots[m] = _mm512_set1_epi32(*(reinterpret_cast<const int32_t*>(token[m].corrections) + i));
      }
      for (int64_t part = 0; part < kParts; ++part) {
        const int8_t* x[kTokens];
        for (int m = 0; m < kTokens; ++m) x[m] = token[m].pieces + (i * kParts + part) * 16 * kPieces;
        dot16<kPieces>(dots, w[part], x);
      }
      for (int m = 0; m < kTokens; ++m) {
        const auto* scale = reinterpret_cast<const float*>(token[m].corrections + scales) + i;
        __m512 d = _mm512_cvtepi32_ps(dots[m]);
        if constexpr (!L::kNvfp4) d = _mm512_mul_ps(d, _mm512_set1_ps(kUnit<kPieces>));
        tree[m].template add<i>(d, _mm512_mul_ps(sw, _mm512_set1_ps(*scale)));
      }
    });
    for (int m = 0; m < kTokens; ++m) acc[m] = _mm512_add_ps(acc[m], tree[m].sum[0]);
  }

  // The same for any number of tokens, a few at a time: the group's weights are in the first-level cache.
  template <int64_t kCount>
  static HB_ALWAYS_INLINE void group_of_tokens(const Decoder& decoder, const uint8_t* at, const Token* tokens,
                                               int64_t rows, int64_t scales, int64_t count_if_0, __m512* acc) {
    int64_t m = 0;
    for (; m + kTokensAtOnce <= rows; m += kTokensAtOnce)
      group<kCount, kTokensAtOnce>(decoder, at, tokens + m, scales, count_if_0, acc + m);
    switch (rows - m) {
      case 3: return group<kCount, 3>(decoder, at, tokens + m, scales, count_if_0, acc + m);
      case 2: return group<kCount, 2>(decoder, at, tokens + m, scales, count_if_0, acc + m);
      case 1: return group<kCount, 1>(decoder, at, tokens + m, scales, count_if_0, acc + m);
      default: return;
    }
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

  // The sums of one tile and all tokens.
  static HB_ALWAYS_INLINE void tile(const Decoder& decoder, const uint8_t* at, const Row* x, int64_t rows,
                                    int64_t blocks, __m512* acc) {
    const auto* corrections = reinterpret_cast<const std::byte*>(x[0].correction);
    const int64_t scales = reinterpret_cast<const std::byte*>(x[0].scale) - corrections;
    Token tokens[kMaxTokens];
    for (int64_t m = 0; m < rows; ++m) {
      tokens[m] = Token::at(x[m], 0);
      acc[m] = _mm512_setzero_ps();
    }
    int64_t first = 0;
    for (; first + kGroupBlocks <= blocks; first += kGroupBlocks, at += Tiles::kGroupBytes) {
      for (int64_t line = 0; line < Tiles::kGroupBytes; line += 64) {
        _mm_prefetch(reinterpret_cast<const char*>(at + kPrefetchBytes + line), _MM_HINT_T0);
      }
      group_of_tokens<kGroupBlocks>(decoder, at, tokens, rows, scales, 0, acc);
      for (int64_t m = 0; m < rows; ++m) {
        tokens[m].pieces += kGroupBlocks * L::kBlock * kPieces;
        tokens[m].corrections += kGroupBlocks * sizeof(int32_t);
      }
    }
    if (first < blocks) group_of_tokens<0>(decoder, at, tokens, rows, scales, blocks - first, acc);
  }

  // A tile's sums of one token -> y, which is at the tile's first output.
  static HB_ALWAYS_INLINE void store(__m512 acc, float scale, const float* bias, int64_t left, float* y) {
    store_outputs(_mm512_mul_ps(acc, _mm512_set1_ps(scale)), bias, left, y);
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
      tile(decoder, tile_at(first), x, call.rows, blocks, acc);
      for (int64_t m = 0; m < call.rows; ++m) store_row(m, acc[m], first);
    }
  }
};

}  // namespace halfbyte::cpu::avx512
