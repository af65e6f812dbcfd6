#include "kernels/cpu/decode_rows.h"

#include <immintrin.h>

#include "kernels/cpu/quantize_rows.h"

namespace halfbyte::cpu {
namespace {

// Sums of a block reach 2^22 times its scale; from here on they could leave FP32's range before the weight's scale
// brings them back. IntRow::scale of NVFP4 rows, A16: activations of 2^119 and more.
constexpr float kWideScale = 0x1p104f;

// 16 signed bytes times `factor` as BF16, in the order of the weights' pairs.
HB_ALWAYS_INLINE void store_run(const int8_t* pieces, float factor, std::byte* out) {
  const __m512i order = _mm512_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
  const __m512i integers = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(pieces)));
  const __m512 values = _mm512_mul_ps(_mm512_cvtepi32_ps(integers), _mm512_set1_ps(factor));
  const __m512i upper = _mm512_srli_epi32(_mm512_castps_si512(_mm512_permutexvar_ps(order, values)), 16);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm512_cvtepi32_epi16(upper));
}

template <class L, int kPieces>
HB_ALWAYS_INLINE void quantize(void (*as_integers)(const float*, int64_t, int64_t, float, std::byte*), const float* x,
                               int64_t rows, int64_t k, float alpha, std::byte* out) {
  using Row = DecodeRow<L, kPieces>;
  const int64_t blocks = Fp4Tiles<L>::blocks(k);
  for (int64_t m = 0; m < rows; ++m, x += k, out += Row::bytes(k)) {
    as_integers(x, 1, k, alpha, out);
    const auto row = IntRow<L, kPieces>::at(out, k);
    std::byte* values = out + Row::values_offset(k);
    uint32_t wide = 0;
    for (int64_t b = 0; b < blocks; ++b) {
      // A product of pieces counts in halves of a weight; those of A4 are doubled, too.
      const float unit = L::kNvfp4 ? 2.0f * row.scale[b] : kPieces == 1 ? 0.5f : 1.0f;
      wide |= kPieces > 1 && L::kNvfp4 && row.scale[b] >= kWideScale ? 1 : 0;
      for (int p = 0; p < kPieces; ++p, values += Row::kRunBytes) {
        for (int64_t part = 0; part < L::kBlock / 16; ++part) {
          const int8_t* pieces = row.pieces + ((b * L::kBlock / 16 + part) * kPieces + p) * 16;
          store_run(pieces, kPieces == 2 && p == 0 ? 256.0f * unit : unit, values + part * 32);
        }
      }
    }
    __builtin_memcpy(out + Row::kWideOffset, &wide, sizeof(wide));
  }
}

}  // namespace

size_t decode_nvfp4_a16_bytes(int64_t k) {
  return static_cast<size_t>(DecodeRow<Nvfp4Layout, 2>::bytes(k));
}
size_t decode_nvfp4_a4_bytes(int64_t k) {
  return static_cast<size_t>(DecodeRow<Nvfp4Layout, 1>::bytes(k));
}
size_t decode_mxfp4_a16_bytes(int64_t k) {
  return static_cast<size_t>(DecodeRow<Mxfp4Layout, 2>::bytes(k));
}
size_t decode_mxfp4_a4_bytes(int64_t k) {
  return static_cast<size_t>(DecodeRow<Mxfp4Layout, 1>::bytes(k));
}

void quantize_decode_nvfp4_a16(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
  quantize<Nvfp4Layout, 2>(&quantize_nvfp4_a16_avx2, x, rows, k, alpha, out);
}
void quantize_decode_nvfp4_a4(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
  quantize<Nvfp4Layout, 1>(&quantize_nvfp4_a4_avx2, x, rows, k, alpha, out);
}
void quantize_decode_mxfp4_a16(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
  quantize<Mxfp4Layout, 2>(&quantize_mxfp4_a16_avx2, x, rows, k, alpha, out);
}
void quantize_decode_mxfp4_a4(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
  quantize<Mxfp4Layout, 1>(&quantize_mxfp4_a4_avx2, x, rows, k, alpha, out);
}

}  // namespace halfbyte::cpu
