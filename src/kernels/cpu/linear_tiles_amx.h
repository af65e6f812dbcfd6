// y = x W^T for prompt rows on AMX, and for many rows of either kind beside BF16 weights: BF16 tiles, sums in the order of docs/numerics.md 3.5.
//
// Bytes moved: the packed weights once every kMaxRows rows. They keep the layout that the decode kernels read; a chunk
// of them is Chunk::tiles tiles of 16 outputs by Chunk::steps steps of 32 k, which the second-level cache holds. BF16
// weights lie as operands (linear_bf16_amx.cpp); FP4 weights are spelt out as BF16, exactly (E2M1 x E4M3 has 6
// significant bits). Then every 32 rows x 32 outputs run over the chunk with 4 accumulators: 4 tile loads for 4 products
// of 16 cycles each. Between two blocks of k the accumulators wait in scratch memory as FP32, so the cut does not show
// in the sums.
//
//   tmm0..3  accumulators: rows 0-15 x outputs 0-15, 16-31; rows 16-31 x outputs 0-15, 16-31
//   tmm4, 5  activations: 16 rows x 32 k          tmm6, 7  weights: 16 pairs of k x 16 outputs
//
// A thread's cost beside the products is the spelling out: about 4 instructions for 16 weights, 1/7 of the products'
// time at 512 rows, and what makes a prompt of a few rows cost as much as reading the weights.
#pragma once

#include <immintrin.h>

#include "kernels/api.h"
#include "kernels/cpu/outputs_avx512.h"
#include "kernels/cpu/tile_rows.h"
#include "kernels/cpu/tile_scratch.h"

namespace halfbyte::cpu::amx {

inline constexpr int64_t kTileBytes = 1024;      // 16 rows of 64 bytes
inline constexpr int64_t kMaxRows = 512;         // input rows that share one spelling out
inline constexpr int64_t kPrefetchBytes = 1024;  // of packed weights, ahead of their use

// How much is spelt out at a time: results do not depend on it.
struct Chunk {
  int64_t tiles = 8;   // even; 16 outputs each
  int64_t steps = 64;  // 32 k each

  constexpr int64_t operand_bytes() const { return tiles * steps * kTileBytes; }
  constexpr int64_t sum_bytes() const { return kMaxRows * tiles * kTileRows * 4; }
};

// Tells the compiler that memory behind `p` is read and written by the tile instructions around this point: GCC's
// intrinsics do not say so.
HB_ALWAYS_INLINE void settle(const void* p) {
  asm volatile("" : : "r"(p) : "memory");
}

// What ldtilecfg reads (Intel SDM, palette 1).
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

HB_ALWAYS_INLINE void load_config(const TileConfig& config) {
  // GCC 12 takes only the first bytes of the struct for an input of _tile_loadconfig and drops the other stores.
  asm volatile("" : : "m"(config));
  _tile_loadconfig(&config);
}

// 1 to 16 input rows in one tile, products of 16 or 32 k. Tiles 0 to 3: sums; 4, 5: activations; 6, 7: weights.
HB_ALWAYS_INLINE void configure_one(int64_t rows, int64_t k) {
  TileConfig config;
  for (int tile = 0; tile < 6; ++tile) config.rows[tile] = static_cast<uint8_t>(rows);
  config.row_bytes[4] = config.row_bytes[5] = static_cast<uint16_t>(k * 2);
  config.rows[6] = config.rows[7] = static_cast<uint8_t>(k / 2);
  load_config(config);
}

// `rows` input rows, 1 to 32, in two tiles.
HB_ALWAYS_INLINE void configure(int64_t rows) {
  const auto first = static_cast<uint8_t>(rows < 16 ? rows : 16),
             second = static_cast<uint8_t>(rows > 16 ? rows - 16 : 1);
  TileConfig config;
  const uint8_t tile_rows[8] = {first, first, second, second, first, second, 16, 16};
  for (int i = 0; i < 8; ++i) config.rows[i] = tile_rows[i];
  load_config(config);
}

// FP4 tiles of fp4_layout.h.
template <class L>
struct Fp4Weights {
  using Tiles = Fp4Tiles<L>;
  static constexpr int64_t kParts = L::kBlock / 16;
  static constexpr bool kScaled = true;     // results are multiplied by the tensor scales
  static constexpr bool kSpeltOut = false;  // packed weights are not operands: spell_out makes them

  // 16 k of 16 outputs: codes of the first and the last 8 k, and the outputs' scales.
  struct Half {
    __m512i codes[2];
    __m512 scale;
  };

  static HB_ALWAYS_INLINE Half half(const uint8_t* tile, int64_t blocks, int64_t index) {
    const int64_t block = index / kParts, group = block / kGroupBlocks, i = block % kGroupBlocks;
    if (block >= blocks) return {{_mm512_setzero_si512(), _mm512_setzero_si512()}, _mm512_setzero_ps()};
    const int64_t left = blocks - group * kGroupBlocks, count = left < kGroupBlocks ? left : kGroupBlocks;
    const uint8_t* at = tile + group * Tiles::kGroupBytes;
    const uint8_t* codes = at + i * Tiles::kBlockCodes + index % kParts * 128;
    const auto* scales = reinterpret_cast<const __m128i*>(at + count * Tiles::kBlockCodes + i * kTileRows);
    for (int64_t line = 0; line < 128; line += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(codes) + kPrefetchBytes + line, _MM_HINT_T0);
    }
    const __m512i wide = _mm512_cvtepu8_epi32(_mm_loadu_si128(scales));
    __m512i bits;
    if constexpr (L::kNvfp4) {
      bits = _mm512_add_epi32(_mm512_slli_epi32(wide, 20), _mm512_set1_epi32(118 << 23));
    } else {
      bits = _mm512_max_epi32(_mm512_slli_epi32(wide, 23), _mm512_set1_epi32(0x00400000));
    }
    return {{_mm512_loadu_si512(codes), _mm512_loadu_si512(codes + 64)}, _mm512_castsi512_ps(bits)};
  }

  // The value at k = 8 part + kIndex: a lookup by the low 4 bits of each lane.
  template <int64_t kIndex>
  static HB_ALWAYS_INLINE __m512i value(const Half& h, int part, __m512 table) {
    constexpr unsigned kShift = kIndex % 4 * 8 + kIndex / 4 * 4;
    const __m512 code = _mm512_permutexvar_ps(_mm512_srli_epi32(h.codes[part], kShift), table);
    return _mm512_castps_si512(_mm512_mul_ps(code, h.scale));
  }

  // Steps [first, first + count) of tile `tile` as BF16, one B operand of 16 pairs x 16 outputs every `stride` bytes:
  // pair i is k = i of both halves of the step.
  static HB_ALWAYS_INLINE void spell_out(const std::byte* packed, int64_t, int64_t k, int64_t tile, int64_t first,
                                         int64_t count, std::byte* out, int64_t stride) {
    const __m512 table = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f, -0.0f, -0.5f, -1.0f, -1.5f,
                                        -2.0f, -3.0f, -4.0f, -6.0f);
    const auto* at = reinterpret_cast<const uint8_t*>(packed) + tile * Tiles::tile_bytes(k);
    const int64_t blocks = Tiles::blocks(k);
    for (int64_t s = first; s < first + count; ++s, out += stride) {
      const Half a = half(at, blocks, 2 * s), b = half(at, blocks, 2 * s + 1);
      for (int part = 0; part < 2; ++part) {
        for_each_of_group([&](auto i) HB_INLINE_LAMBDA {
          const __m512i even = value<i>(a, part, table), odd = value<i>(b, part, table);
          // The lower halves of both are 0.
          const __m512i pair = _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(even, 16), odd);
          _mm512_storeu_si512(out + (part * 8 + i) * 64, pair);
        });
      }
    }
  }
};

// acc += x w over `steps` steps: 16 kA rows at `a` (row stride a_stride) by 16 kB outputs at `b` (kB operands a step).
// c: the four accumulators, [2][2][16][16].
template <int kA, int kB>
HB_ALWAYS_INLINE void multiply_block(const std::byte* a, int64_t a_stride, const std::byte* b, int64_t steps, float* c,
                                     bool first) {
  if (first) {
    _tile_zero(0);
    if (kB == 2) _tile_zero(1);
    if (kA == 2) _tile_zero(2);
    if (kA == 2 && kB == 2) _tile_zero(3);
  } else {
    _tile_loadd(0, c, 64);
    if (kB == 2) _tile_loadd(1, c + 256, 64);
    if (kA == 2) _tile_loadd(2, c + 512, 64);
    if (kA == 2 && kB == 2) _tile_loadd(3, c + 768, 64);
  }
  for (int64_t s = 0; s < steps; ++s, a += kTileStepBytes, b += kB * kTileBytes) {
    _tile_loadd(4, a, a_stride);
    if (kA == 2) _tile_loadd(5, a + 16 * a_stride, a_stride);
    _tile_loadd(6, b, 64);
    if (kB == 2) _tile_loadd(7, b + kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (kB == 2) _tile_dpbf16ps(1, 4, 7);
    if (kA == 2) _tile_dpbf16ps(2, 5, 6);
    if (kA == 2 && kB == 2) _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, c, 64);
  if (kB == 2) _tile_stored(1, c + 256, 64);
  if (kA == 2) _tile_stored(2, c + 512, 64);
  if (kA == 2 && kB == 2) _tile_stored(3, c + 768, 64);
}

HB_ALWAYS_INLINE void multiply_block(int64_t rows, int64_t tiles, const std::byte* a, int64_t a_stride,
                                     const std::byte* b, int64_t steps, float* c, bool first) {
  if (rows > 16) {
    if (tiles == 2)
      multiply_block<2, 2>(a, a_stride, b, steps, c, first);
    else
      multiply_block<2, 1>(a, a_stride, b, steps, c, first);
  } else {
    if (tiles == 2)
      multiply_block<1, 2>(a, a_stride, b, steps, c, first);
    else
      multiply_block<1, 1>(a, a_stride, b, steps, c, first);
  }
}

template <class Weights, Chunk kChunk = Chunk{}>
struct LinearTiles {
  // Accumulators of up to 32 rows x all outputs of the chunk -> y. Row by row, so that a row of y is visited once: the
  // rows of a wide y lie on different pages.
  static HB_ALWAYS_INLINE void finish(const LinearCall& call, const float* sums, int64_t row, int64_t rows,
                                      int64_t begin, int64_t end) {
    const int64_t row_bytes = tile_row_bytes(call.k);
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = sums + r / 16 * 512 + r % 16 * 16;
      __m512 scale = _mm512_setzero_ps();
      if constexpr (Weights::kScaled) {
        float alpha;
        __builtin_memcpy(&alpha, call.activations + (row + r) * row_bytes, sizeof(float));
        scale = _mm512_set1_ps(call.tensor_scale * alpha);
      }
      float* y = call.y + (row + r) * call.ldy;
      for (int64_t at = begin, t = 0; at < end; at += kTileRows, ++t) {
        __m512 out = _mm512_loadu_ps(from + t / 2 * 1024 + t % 2 * 256);
        if constexpr (Weights::kScaled) out = _mm512_mul_ps(out, scale);
        avx512::store_outputs(out, call.bias != nullptr ? call.bias + at : nullptr, end - at, y + at);
      }
    }
  }

  // Outputs [begin, end), at most kChunk.tiles tiles, of all rows.
  static HB_ALWAYS_INLINE void chunk(const LinearCall& call, int64_t begin, int64_t end, std::byte* operands,
                                     float* sums) {
    const int64_t tiles = (end - begin + kTileRows - 1) / kTileRows, pairs = (tiles + 1) / 2;
    const int64_t steps = tile_steps(call.k), row_bytes = tile_row_bytes(call.k);
    for (int64_t step = 0; step < steps; step += kChunk.steps) {
      const int64_t count = steps - step < kChunk.steps ? steps - step : kChunk.steps;
      const int64_t pair_bytes = (Weights::kSpeltOut ? steps : count) * 2 * kTileBytes;
      const std::byte* b = operands;
      if constexpr (Weights::kSpeltOut) {
        b = call.packed + begin / (2 * kTileRows) * pair_bytes + step * 2 * kTileBytes;
      } else {
        for (int64_t t = 0; t < tiles; ++t) {
          const int64_t of_pair = t == tiles - 1 && t % 2 == 0 ? 1 : 2;  // a pair may have lost its second tile
          Weights::spell_out(call.packed, call.n, call.k, begin / kTileRows + t, step, count,
                             operands + t / 2 * pair_bytes + t % 2 * kTileBytes, of_pair * kTileBytes);
        }
        settle(operands);
      }
      int64_t configured = 0;
      for (int64_t row = 0; row < call.rows; row += 32) {
        const int64_t here = call.rows - row < 32 ? call.rows - row : 32;
        if (here != configured) configure(configured = here);
        const std::byte* a = call.activations + row * row_bytes + kTileHeaderBytes + step * kTileStepBytes;
        float* row_sums = sums + row / 32 * pairs * 1024;
        for (int64_t pair = 0; pair < pairs; ++pair) {
          const int64_t tiles_here = !Weights::kSpeltOut && tiles - 2 * pair < 2 ? 1 : 2;
          multiply_block(here, tiles_here, a, row_bytes, b + pair * pair_bytes, count, row_sums + pair * 1024,
                         step == 0);
        }
        if (step + count < steps) continue;
        settle(row_sums);
        finish(call, row_sums, row, here, begin, end);
      }
    }
  }

  static void run(const LinearCall& call) {
    std::byte* scratch = tile_scratch(static_cast<size_t>(kChunk.operand_bytes() + kChunk.sum_bytes()));
    auto* sums = reinterpret_cast<float*>(scratch + kChunk.operand_bytes());
    constexpr int64_t kOutputs = kChunk.tiles * kTileRows;
    for (int64_t begin = call.n_begin; begin < call.n_end; begin += kOutputs) {
      chunk(call, begin, begin + kOutputs < call.n_end ? begin + kOutputs : call.n_end, scratch, sums);
    }
    _tile_release();
  }
};

// A prompt kernel beside a decode kernel with the same `packed_bytes` and `pack`.
template <class Weights>
constexpr LinearKernel tile_kernel(std::string_view name, WeightFormat format, ActivationMode mode,
                                   size_t (*packed_bytes)(int64_t, int64_t),
                                   void (*pack)(const QuantLinear&, int64_t, int64_t, std::byte*),
                                   void (*quantize)(const float*, int64_t, int64_t, float, std::byte*)) {
  return {name,
          Isa::kAmx,
          format,
          mode,
          /*row_tile=*/2 * kTileRows,
          kMaxRows,
          packed_bytes,
          pack,
          &tile_activation_bytes,
          quantize,
          &LinearTiles<Weights>::run,
          /*prompt_only=*/true};
}

}  // namespace halfbyte::cpu::amx
