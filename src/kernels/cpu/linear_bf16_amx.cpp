// y = x W^T for BF16 weights and BF16 activations on AMX, decode and prompt rows alike: the tile order of
// docs/numerics.md 3.5.
//
// Weights are packed as the tile instruction reads them: pairs of tiles of 16 outputs, and of a pair step by step of 32 k
// two operands of 16 pairs of k x 16 outputs, 2 KB. What is beyond n and k is zero. Up to 16 rows take a pass over the
// packed weights and nothing else: a product of 16 rows takes 16 cycles and 1 KB of weights, so however many they are,
// memory is what they wait for. More rows run as in linear_tiles_amx.h.
#include "kernels/cpu/linear_tiles_amx.h"
#include "kernels/kernel_lists.h"

namespace halfbyte::cpu {
namespace {

constexpr int64_t kPairRows = 2 * kTileRows;
constexpr int64_t kPairStepBytes = 2 * amx::kTileBytes;
constexpr int64_t kDecodeRows = 16;
constexpr int64_t kStreams = 2;  // pairs of tiles, far apart, that are read in turn
constexpr int64_t kNearBytes = 2048,
                  kFarBytes = 8192;  // asked for into the first- and the second-level cache; not tuned

struct OperandWeights {
  static constexpr bool kScaled = false;
  static constexpr bool kSpeltOut = true;
};

// Rows i of 16 lanes become lanes i of 16 rows.
HB_ALWAYS_INLINE void transpose(__m512i (&r)[16]) {
  __m512i t[16];
  for (int i = 0; i < 16; i += 2) {  // pairs of lanes of neighbouring rows
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4) {  // each 128-bit part holds a column of four rows
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {                                  // columns i, i + 4, i + 8, i + 12 are in parts 0 to 3
    t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);           // rows 0-7: parts 0, 2 of both
    t[i + 4] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xDD);       // parts 1, 3
    t[i + 8] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);  // rows 8-15
    t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xDD);
  }
  for (int i = 0; i < 4; ++i) {
    r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
    r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xDD);
    r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
    r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xDD);
  }
}

size_t operand_bytes(int64_t n, int64_t k) {
  return static_cast<size_t>((n + kPairRows - 1) / kPairRows * tile_steps(k) * kPairStepBytes);
}

void pack_operands(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed) {
  const auto* codes = w.codes.as<uint16_t>();
  const int64_t steps = tile_steps(w.k);
  for (int64_t tile = n_begin / kTileRows; tile < (n_end + kPairRows - 1) / kPairRows * 2; ++tile) {
    std::byte* out = packed + tile / 2 * steps * kPairStepBytes + tile % 2 * amx::kTileBytes;
    for (int64_t s = 0; s < steps; ++s, out += kPairStepBytes) {
      const int64_t left = w.k - s * kTileStep;
      const auto mask = static_cast<__mmask32>(left >= kTileStep ? 0xFFFFFFFFu : (1u << left) - 1);
      __m512i r[16];
      for (int64_t i = 0; i < 16; ++i) {
        const int64_t row = tile * kTileRows + i;
        r[i] = row < w.n ? _mm512_maskz_loadu_epi16(mask, codes + row * w.k + s * kTileStep) : _mm512_setzero_si512();
      }
      transpose(r);
      for (int64_t i = 0; i < 16; ++i) _mm512_storeu_si512(out + i * 64, r[i]);
    }
  }
}

HB_ALWAYS_INLINE void prefetch_step(const std::byte* at) {
  for (int64_t line = 0; line < kPairStepBytes; line += 64) {
    _mm_prefetch(reinterpret_cast<const char*>(at) + line + kNearBytes, _MM_HINT_T0);
    _mm_prefetch(reinterpret_cast<const char*>(at) + line + kFarBytes, _MM_HINT_T1);
  }
}

// Sums of all rows and kPairs pairs of tiles -> sums [kPairs][2][16][16].
template <int kPairs>
HB_ALWAYS_INLINE void multiply_pairs(const LinearCall& call, const std::byte* const (&pair)[kStreams], float* sums) {
  const int64_t row_bytes = tile_row_bytes(call.k), steps = tile_steps(call.k);
  const std::byte* x = call.activations + kTileHeaderBytes;
  const std::byte *b0 = pair[0], *b1 = pair[1];
  _tile_zero(0);
  _tile_zero(1);
  if (kPairs == 2) _tile_zero(2);
  if (kPairs == 2) _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s, x += kTileStepBytes, b0 += kPairStepBytes, b1 += kPairStepBytes) {
    prefetch_step(b0);
    _tile_loadd(4, x, row_bytes);
    _tile_loadd(6, b0, 64);
    _tile_loadd(7, b0 + amx::kTileBytes, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    if constexpr (kPairs == 2) {
      prefetch_step(b1);
      _tile_loadd(6, b1, 64);
      _tile_loadd(7, b1 + amx::kTileBytes, 64);
      _tile_dpbf16ps(2, 4, 6);
      _tile_dpbf16ps(3, 4, 7);
    }
  }
  _tile_stored(0, sums, 64);
  _tile_stored(1, sums + 256, 64);
  if (kPairs == 2) _tile_stored(2, sums + 512, 64);
  if (kPairs == 2) _tile_stored(3, sums + 768, 64);
  amx::settle(sums);
}

// Sums of one pair of tiles -> y.
HB_ALWAYS_INLINE void store_pair(const LinearCall& call, const float* sums, int64_t first) {
  for (int64_t at = first; at < first + kPairRows && at < call.n_end; at += kTileRows, sums += 256) {
    for (int64_t m = 0; m < call.rows; ++m) {
      avx512::store_outputs(_mm512_loadu_ps(sums + m * 16), call.bias != nullptr ? call.bias + at : nullptr,
                            call.n_end - at, call.y + m * call.ldy + at);
    }
  }
}

void run_few(const LinearCall& call) {
  auto* sums = reinterpret_cast<float*>(tile_scratch(2 * kStreams * amx::kTileBytes));
  const int64_t pair_bytes = tile_steps(call.k) * kPairStepBytes;
  const auto pair_at = [&](int64_t first) HB_INLINE_LAMBDA { return call.packed + first / kPairRows * pair_bytes; };
  const int64_t part = (call.n_end - call.n_begin + kPairRows - 1) / kPairRows / kStreams * kPairRows;
  amx::configure_one(call.rows, kTileStep);
  int64_t first = call.n_begin;
  for (; first < call.n_begin + part; first += kPairRows) {
    multiply_pairs<2>(call, {pair_at(first), pair_at(first + part)}, sums);
    store_pair(call, sums, first);
    store_pair(call, sums + 512, first + part);
  }
  for (first += part; first < call.n_end; first += kPairRows) {
    multiply_pairs<1>(call, {pair_at(first), pair_at(first)}, sums);
    store_pair(call, sums, first);
  }
  _tile_release();
}

void run(const LinearCall& call) {
  call.rows <= kDecodeRows ? run_few(call) : amx::LinearTiles<OperandWeights>::run(call);
}

}  // namespace

std::span<const LinearKernel> linear_bf16_amx() {
  static constexpr LinearKernel kKernels[] = {
      {"linear_bf16_a16t_amx", Isa::kAmx, WeightFormat::kBF16, ActivationMode::kA16, /*row_tile=*/kPairRows,
       amx::kMaxRows, &operand_bytes, &pack_operands, &tile_activation_bytes, &quantize_tile_bf16_a16, &run}};
  return kKernels;
}

}  // namespace halfbyte::cpu
