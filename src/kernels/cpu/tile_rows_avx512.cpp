// Activation rows of the tile form with AVX-512. FP8 and FP4 rows are made in the integer form first (quantize_rows.h),
// so that there is one piece of code that rounds them, and then spelt out as BF16.
#include "kernels/cpu/tile_rows.h"

#include <immintrin.h>

#include "kernels/cpu/quantize_rows.h"
#include "kernels/cpu/tile_scratch.h"

namespace halfbyte::cpu {
namespace {

constexpr int32_t kAbs = 0x7FFFFFFF, kInfinity = 0x7F800000;

HB_ALWAYS_INLINE float nan_float() {
  const uint32_t bits = 0x7FC00000u;
  float f;
  __builtin_memcpy(&f, &bits, 4);
  return f;
}

HB_ALWAYS_INLINE __mmask16 first_lanes(int64_t count) {
  return static_cast<__mmask16>(count >= 16 ? 0xFFFF : count <= 0 ? 0 : (1 << count) - 1);
}

// FP32 bits -> the BF16 they round to, in the upper half of each lane (the lower half is rubbish). Not for NaN.
HB_ALWAYS_INLINE __m512i round_bf16(__m512i bits) {
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  return _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
}

// Upper halves of both: a's lane i in word 2i, b's in word 2i + 1.
HB_ALWAYS_INLINE __m512i interleave_upper(__m512i a, __m512i b) {
  return _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_srli_epi32(a, 16), b);
}

template <class L, int kPieces>
HB_ALWAYS_INLINE __m512i part_as_bf16(const IntRow<L, kPieces>& row, int64_t part) {
  const int8_t* pieces = row.pieces + part * 16 * kPieces;
  __m512i value = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pieces)));
  for (int p = 1; p < kPieces; ++p) {
    const __m512i next = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pieces + 16 * p)));
    value = _mm512_add_epi32(_mm512_slli_epi32(value, 8), next);
  }
  // NVFP4 rows have the unit of integer sums in their scales (fp4_layout.h); what is left is the block's own scale.
  const float scale = row.scale[part * 16 / L::kBlock] * (L::kNvfp4 ? 1.0f / kUnit<kPieces> : 1.0f);
  const __m512 code = _mm512_mul_ps(_mm512_cvtepi32_ps(value), _mm512_set1_ps(2.0f * kUnit<kPieces>));
  return _mm512_castps_si512(_mm512_mul_ps(code, _mm512_set1_ps(scale)));
}

// Rows that `quantize` makes in the integer form, spelt out.
template <class L, int kPieces>
HB_ALWAYS_INLINE void quantize_as_integers(void (*quantize)(const float*, int64_t, int64_t, float, std::byte*),
                                           const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
  using Row = IntRow<L, kPieces>;
  const int64_t parts = Fp4Tiles<L>::blocks(k) * (L::kBlock / 16), steps = tile_steps(k);
  std::byte* scratch = row_scratch(static_cast<size_t>(Row::bytes(k)));
  for (int64_t m = 0; m < rows; ++m, x += k, out += tile_row_bytes(k)) {
    quantize(x, 1, k, alpha, scratch);
    const Row row = Row::at(scratch, k);
    __builtin_memcpy(out, row.alpha, sizeof(float));
    for (int64_t s = 0; s < steps; ++s) {
      const __m512i first = part_as_bf16<L, kPieces>(row, 2 * s);
      const __m512i second = 2 * s + 1 < parts ? part_as_bf16<L, kPieces>(row, 2 * s + 1) : _mm512_setzero_si512();
      _mm512_storeu_si512(out + kTileHeaderBytes + s * kTileStepBytes, interleave_upper(first, second));
    }
  }
}

}  // namespace

void quantize_tile_fp4_a16(const float* x, int64_t rows, int64_t k, float, std::byte* out) {
  const int64_t steps = tile_steps(k);
  for (int64_t m = 0; m < rows; ++m, x += k, out += tile_row_bytes(k)) {
    __m512i widest = _mm512_setzero_si512();
    for (int64_t s = 0; s < steps; ++s) {
      const int64_t left = k - s * kTileStep;
      __m512i half[2];
      for (int i = 0; i < 2; ++i) {
        const __m512 v = _mm512_maskz_loadu_ps(first_lanes(left - 16 * i), x + s * kTileStep + 16 * i);
        const __m512i bits = _mm512_castps_si512(v);
        half[i] = round_bf16(bits);
        // Before rounding, so that no NaN turns into something else, and after it, which may reach infinity.
        widest = _mm512_max_epu32(widest, _mm512_and_si512(bits, _mm512_set1_epi32(kAbs)));
        widest = _mm512_max_epu32(widest, _mm512_and_si512(half[i], _mm512_set1_epi32(kAbs)));
      }
      _mm512_storeu_si512(out + kTileHeaderBytes + s * kTileStepBytes, interleave_upper(half[0], half[1]));
    }
    const bool finite = _mm512_cmpge_epu32_mask(widest, _mm512_set1_epi32(kInfinity)) == 0;
    const float row_alpha = finite ? 1.0f : nan_float();
    __builtin_memcpy(out, &row_alpha, sizeof(float));
    if (finite) continue;
    for (int64_t s = 0; s < steps; ++s) {
      _mm512_storeu_si512(out + kTileHeaderBytes + s * kTileStepBytes, _mm512_setzero_si512());
    }
  }
}

void quantize_tile_bf16_a16(const float* x, int64_t rows, int64_t k, float, std::byte* out) {
  const int64_t steps = tile_steps(k);
  const float one = 1.0f;
  for (int64_t m = 0; m < rows; ++m, x += k, out += tile_row_bytes(k)) {
    __builtin_memcpy(out, &one, sizeof(float));
    for (int64_t i = 0; i < 2 * steps; ++i) {
      const __m512i bits = _mm512_castps_si512(_mm512_maskz_loadu_ps(first_lanes(k - 16 * i), x + 16 * i));
      const __m512i magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(kAbs));
      const __mmask16 is_nan = _mm512_cmpgt_epu32_mask(magnitude, _mm512_set1_epi32(kInfinity));
      const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x00400000));
      const __m512i rounded = _mm512_srli_epi32(_mm512_mask_blend_epi32(is_nan, round_bf16(bits), quiet), 16);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + kTileHeaderBytes + i * 32), _mm512_cvtepi32_epi16(rounded));
    }
  }
}

void quantize_tile_nvfp4_a8(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
  quantize_as_integers<Nvfp4Layout, 3>(&quantize_nvfp4_a8_avx2, x, rows, k, alpha, out);
}
void quantize_tile_nvfp4_a4(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
  quantize_as_integers<Nvfp4Layout, 1>(&quantize_nvfp4_a4_avx2, x, rows, k, alpha, out);
}
void quantize_tile_mxfp4_a8(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
  quantize_as_integers<Mxfp4Layout, 3>(&quantize_mxfp4_a8_avx2, x, rows, k, alpha, out);
}
void quantize_tile_mxfp4_a4(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
  quantize_as_integers<Mxfp4Layout, 1>(&quantize_mxfp4_a4_avx2, x, rows, k, alpha, out);
}

}  // namespace halfbyte::cpu
