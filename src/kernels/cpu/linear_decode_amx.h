// y = x W^T for several decode rows on AMX: the sums of linear_fp4_avx512.h, bit for bit.
//
// A tile instruction adds in an order of its own, but within one block nothing is rounded: weights are E2M1, activations
// E2M1 times their scale, or the two bytes of a 16-bit integer, and 16 or 32 such products need at most 24 bits. So one
// instruction a block gives d_b (docs/numerics.md 3, step 1) of up to 16 rows x 16 outputs, exactly, as FP32, and what
// is left to the vector instructions is a multiplication and an addition for each block, row and vector of outputs. FP8
// rows need 26 bits and stay with VNNI.
//
// Bytes moved: the packed weights once for up to 16 rows (as on AVX-512). Per 16 x 16 weights: 14 instructions spell the
// codes out as BF16 (a lookup of 32 words by 4 bits each), 8 stores, one or two products.
//
// A pair of tiles of 16 outputs runs group by group, each group in three phases through memory of the first-level cache:
// codes to BF16 operands, products, then scales and the contract's tree.
//
//   tmm0, 1  block sums: rows x 16 outputs, of either tile     tmm4, 5  activations: rows x a block's k, of either piece
//   tmm6, 7  weights: pairs of k x 16 outputs, of either tile
#pragma once

#include "kernels/cpu/decode_rows.h"
#include "kernels/cpu/linear_fp4_avx512.h"
#include "kernels/cpu/linear_tiles_amx.h"

namespace halfbyte::cpu::amx {

inline constexpr int64_t kMaxDecodeRows = 16;
// Fewer rows run on AVX-512: a product costs the same for 3 rows as for 16, and storing its sums 16 cycles more. At 16
// rows tiles take four fifths of the time of two passes of 8 (bench/results/cpu_decode_rows_2026-11-30.md).
template <class L, int kPieces>
inline constexpr int64_t kFewestRows = L::kNvfp4 || kPieces == 1 ? 9 : 8;
static_assert(kMaxDecodeRows <= avx512::kMaxTokens);

template <class L, int kPieces>
struct LinearDecode {
  using Tiles = Fp4Tiles<L>;
  using Row = DecodeRow<L, kPieces>;
  using Vnni = avx512::LinearFp4<L, kPieces>;
  static constexpr int kStreams = 2;
  static constexpr int64_t kParts = L::kBlock / 16;
  static constexpr int64_t kOperandBytes = kParts * 512;    // a block of 16 outputs as BF16
  static constexpr int64_t kSumStride = kGroupBlocks * 64;  // a row's sums of a group lie together

  // Of one thread, in the first-level cache.
  struct Scratch {
    std::byte operands[kGroupBlocks][kStreams][kOperandBytes];
    float scales[kStreams][kGroupBlocks][16];
    float sums[kStreams][kMaxDecodeRows][kGroupBlocks][16];
  };
  struct Pass {
    const std::byte* activations;  // BF16 values of the first row
    int64_t row_bytes, rows, blocks;
    const float* scales[kMaxDecodeRows];  // of the rows' blocks: used where they are not in the values (MXFP4)
  };

  // 8 k of 16 outputs -> 4 rows of an operand. Word j of lane r holds k = 2j, 2j + 4, 2j + 1, 2j + 5, from the low bits on:
  // so the pairs are (0, 2), (4, 6), (1, 3), (5, 7). The table holds the 16 values twice, since 5 bits choose.
  static HB_ALWAYS_INLINE void spell_out(__m512i codes, __m512i table, std::byte* out) {
    _mm512_storeu_si512(out, _mm512_permutexvar_epi16(codes, table));
    _mm512_storeu_si512(out + 64, _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 4), table));
    _mm512_storeu_si512(out + 128, _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 8), table));
    _mm512_storeu_si512(out + 192, _mm512_permutexvar_epi16(_mm512_srli_epi16(codes, 12), table));
  }

  static HB_ALWAYS_INLINE __m512i table() {
    const __m256i once =
        _mm256_setr_epi16(0, 0x3F00, 0x3F80, 0x3FC0, 0x4000, 0x4040, 0x4080, 0x40C0, static_cast<int16_t>(0x8000),
                          static_cast<int16_t>(0xBF00), static_cast<int16_t>(0xBF80), static_cast<int16_t>(0xBFC0),
                          static_cast<int16_t>(0xC000), static_cast<int16_t>(0xC040), static_cast<int16_t>(0xC080),
                          static_cast<int16_t>(0xC0C0));
    return _mm512_broadcast_i64x4(once);
  }

  // One group of `count` blocks of kTiles tiles for all rows. kCount = 8, or 0 for a last group of fewer.
  template <int kTiles, int64_t kCount>
  static HB_ALWAYS_INLINE void group(const Pass& pass, const uint8_t* const (&at)[kStreams], int64_t first,
                                     int64_t count_if_0, Scratch& s, __m512 (&acc)[kTiles][kMaxDecodeRows]) {
    const int64_t count = kCount != 0 ? kCount : count_if_0;
    const __m512i values = table();
    for_each_of_group([&](auto i) HB_INLINE_LAMBDA {
      if (i >= count) return;
      for (int t = 0; t < kTiles; ++t) {
        for (int64_t line = i * Tiles::kBlockBytes / 64; line < (i + 1) * Tiles::kBlockBytes / 64; ++line) {
          const char* ahead = reinterpret_cast<const char*>(at[t]) + line * 64;
          _mm_prefetch(ahead + avx512::kNearBytes, _MM_HINT_T0);
          _mm_prefetch(ahead + avx512::kFarBytes, _MM_HINT_T1);
        }
        for (int64_t half = 0; half < 2 * kParts; ++half) {
          spell_out(_mm512_loadu_si512(at[t] + i * Tiles::kBlockCodes + half * 64), values,
                    s.operands[i][t] + half * 256);
        }
        _mm512_storeu_ps(s.scales[t][i], avx512::block_scales<L>(at[t] + count * Tiles::kBlockCodes + i * kTileRows));
      }
    });
    settle(&s);
    const std::byte* a = pass.activations + first * Row::kBlockBytes;
    for (int64_t i = 0; i < count; ++i, a += Row::kBlockBytes) {
      _tile_loadd(4, a, pass.row_bytes);
      if (kPieces == 2) _tile_loadd(5, a + Row::kRunBytes, pass.row_bytes);
      _tile_loadd(6, s.operands[i][0], 64);
      _tile_zero(0);
      _tile_dpbf16ps(0, 4, 6);
      if (kPieces == 2) _tile_dpbf16ps(0, 5, 6);
      _tile_stored(0, s.sums[0][0][i], kSumStride);
      if (kTiles == 2) {
        _tile_loadd(7, s.operands[i][1], 64);
        _tile_zero(1);
        _tile_dpbf16ps(1, 4, 7);
        if (kPieces == 2) _tile_dpbf16ps(1, 5, 7);
        _tile_stored(1, s.sums[1][0][i], kSumStride);
      }
    }
    settle(&s);
    for (int t = 0; t < kTiles; ++t) {
      __m512 sw[8];
      for_each_of_group(
          [&](auto i) HB_INLINE_LAMBDA { sw[i] = i < count ? _mm512_loadu_ps(s.scales[t][i]) : _mm512_setzero_ps(); });
      for (int64_t m = 0; m < pass.rows; ++m) {
        __m512 term[8];
        for_each_of_group([&](auto i) HB_INLINE_LAMBDA {
          if (i >= count) {
            term[i] = _mm512_setzero_ps();
            return;
          }
          __m512 scale = sw[i];
          if constexpr (!L::kNvfp4) scale = _mm512_mul_ps(scale, _mm512_set1_ps(pass.scales[m][first + i]));
          term[i] = _mm512_mul_ps(_mm512_loadu_ps(s.sums[t][m][i]), scale);
        });
        acc[t][m] = _mm512_add_ps(acc[t][m], Vnni::tree8(term));
      }
    }
  }

  template <int kTiles>
  static HB_ALWAYS_INLINE void tiles(const Pass& pass, const uint8_t* (&at)[kStreams], Scratch& s,
                                     __m512 (&acc)[kTiles][kMaxDecodeRows]) {
    for (int t = 0; t < kTiles; ++t) {
      for (int64_t m = 0; m < pass.rows; ++m) acc[t][m] = _mm512_setzero_ps();
    }
    int64_t first = 0;
    for (; first + kGroupBlocks <= pass.blocks; first += kGroupBlocks) {
      group<kTiles, kGroupBlocks>(pass, at, first, 0, s, acc);
      for (const uint8_t*& tile : at) tile += Tiles::kGroupBytes;
    }
    if (first < pass.blocks) group<kTiles, 0>(pass, at, first, pass.blocks - first, s, acc);
  }

  static HB_ALWAYS_INLINE bool any_wide(const std::byte* activations, int64_t row_bytes, int64_t rows) {
    uint32_t any = 0;
    for (int64_t m = 0; m < rows; ++m) {
      uint32_t wide;
      __builtin_memcpy(&wide, activations + m * row_bytes + Row::kWideOffset, sizeof(wide));
      any |= wide;
    }
    return any != 0;
  }

  static void run(const LinearCall& call) {
    const int64_t row_bytes = Row::bytes(call.k);
    if (call.rows < kFewestRows<L, kPieces> || any_wide(call.activations, row_bytes, call.rows)) {
      Vnni::run_rows(call, row_bytes);
      return;
    }
    Pass pass{call.activations + Row::values_offset(call.k), row_bytes, call.rows, Tiles::blocks(call.k), {}};
    float alpha[kMaxDecodeRows];
    for (int64_t m = 0; m < call.rows; ++m) {
      const auto row = Row::Integers::at(call.activations + m * row_bytes, call.k);
      pass.scales[m] = row.scale;
      alpha[m] = call.tensor_scale * *row.alpha;
    }
    auto& scratch = *reinterpret_cast<Scratch*>(tile_scratch(sizeof(Scratch)));
    configure_one(call.rows, L::kBlock);
    const auto store = [&](const __m512* acc, int64_t output) HB_INLINE_LAMBDA {
      for (int64_t m = 0; m < call.rows; ++m) {
        Vnni::store(acc[m], alpha[m], call.bias != nullptr ? call.bias + output : nullptr, call.n - output,
                    call.y + m * call.ldy + output);
      }
    };
    const int64_t tile_bytes = Tiles::tile_bytes(call.k);
    for (int64_t output = call.n_begin; output < call.n_end; output += kStreams * kTileRows) {
      const uint8_t* at[kStreams];
      for (int t = 0; t < kStreams; ++t) {
        at[t] = reinterpret_cast<const uint8_t*>(call.packed) + (output / kTileRows + t) * tile_bytes;
      }
      if (output + kTileRows < call.n_end) {
        __m512 acc[2][kMaxDecodeRows];
        tiles<2>(pass, at, scratch, acc);
        store(acc[0], output);
        store(acc[1], output + kTileRows);
      } else {
        __m512 acc[1][kMaxDecodeRows];
        tiles<1>(pass, at, scratch, acc);
        store(acc[0], output);
      }
    }
    _tile_release();
  }
};

// The kernel of decode rows. In a list it stands behind the prompt kernels of its format: of one set, the first that may
// run a row is chosen.
template <class L, int kPieces>
constexpr LinearKernel decode_kernel(std::string_view name, WeightFormat format, ActivationMode mode,
                                     size_t (*packed_bytes)(int64_t, int64_t),
                                     void (*pack)(const QuantLinear&, int64_t, int64_t, std::byte*),
                                     size_t (*activation_bytes)(int64_t),
                                     void (*quantize)(const float*, int64_t, int64_t, float, std::byte*)) {
  return {name,
          Isa::kAmx,
          format,
          mode,
          /*row_tile=*/2 * kTileRows,
          kMaxDecodeRows,
          packed_bytes,
          pack,
          activation_bytes,
          quantize,
          &LinearDecode<L, kPieces>::run};
}

}  // namespace halfbyte::cpu::amx
