// Activations in the integer form of fp4_layout.h with AVX2. Two passes a row: block scales, eight blocks at a time,
// then the values; FP4 and FP8 codes are made as the integers they stand for, never as codes.
#include <immintrin.h>

#include "kernels/cpu/fp4_layout.h"
#include "kernels/cpu/quantize_rows.h"

namespace halfbyte::cpu {
namespace {

constexpr uint32_t kAbs = 0x7FFFFFFFu, kInfinity = 0x7F800000u, kNaN = 0x7FC00000u;

HB_ALWAYS_INLINE __m256i set32(uint32_t v) {
  return _mm256_set1_epi32(static_cast<int32_t>(v));
}
HB_ALWAYS_INLINE __m256i bits(__m256 v) {
  return _mm256_castps_si256(v);
}
HB_ALWAYS_INLINE __m256 floats(__m256i v) {
  return _mm256_castsi256_ps(v);
}
HB_ALWAYS_INLINE __m256i abs_bits(__m256 v) {
  return _mm256_and_si256(bits(v), set32(kAbs));
}

HB_ALWAYS_INLINE uint32_t max_lane(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

HB_ALWAYS_INLINE int32_t sum_lanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1));
  return _mm_cvtsi128_si32(s);
}

HB_ALWAYS_INLINE float float_of(uint32_t b) {
  float f;
  __builtin_memcpy(&f, &b, 4);
  return f;
}

// 16 or 32 elements; beyond k they are 0.
template <int64_t kBlock>
struct Elements {
  __m256 v[kBlock / 8];

  static HB_ALWAYS_INLINE Elements load(const float* x, int64_t left) {
    Elements e;
    alignas(32) float padded[kBlock] = {};
    const float* from = x;
    if (left < kBlock) {
      for (int64_t i = 0; i < left; ++i) padded[i] = x[i];
      from = padded;
    }
    for (int64_t i = 0; i < kBlock / 8; ++i) e.v[i] = _mm256_loadu_ps(from + 8 * i);
    return e;
  }

  // The bits of the largest magnitude; a NaN is larger than everything.
  HB_ALWAYS_INLINE uint32_t amax_bits() const {
    __m256i m = abs_bits(v[0]);
    for (int64_t i = 1; i < kBlock / 8; ++i) m = _mm256_max_epu32(m, abs_bits(v[i]));
    return max_lane(m);
  }
};

HB_ALWAYS_INLINE uint32_t row_amax_bits(const float* x, int64_t k) {
  __m256i m = _mm256_setzero_si256();
  for (int64_t i = 0; i < k; i += 16) {
    const auto e = Elements<16>::load(x + i, k - i);
    m = _mm256_max_epu32(m, _mm256_max_epu32(abs_bits(e.v[0]), abs_bits(e.v[1])));
  }
  return max_lane(m);
}

// Sixteen 32-bit integers (within int16) as int16 in order.
HB_ALWAYS_INLINE __m256i narrow16(__m256i a, __m256i b) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);
}

HB_ALWAYS_INLINE __m256i sign_extend_byte(__m256i v) {
  return _mm256_srai_epi32(_mm256_slli_epi32(v, 24), 24);
}

// Writes 16 values as signed byte pieces, most significant first; returns the sum of the values.
template <int kPieces>
HB_ALWAYS_INLINE int32_t store_pieces(__m256i a, __m256i b, int8_t* out) {
  if constexpr (kPieces == 1) {
    const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(narrow16(a, b), _mm256_setzero_si256()), 0xD8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm256_castsi256_si128(bytes));
  } else if constexpr (kPieces == 2) {
    const __m256i v = narrow16(a, b);
    const __m256i high = _mm256_srai_epi16(_mm256_add_epi16(v, _mm256_set1_epi16(128)), 8);
    const __m256i low = _mm256_srai_epi16(_mm256_slli_epi16(v, 8), 8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute4x64_epi64(_mm256_packs_epi16(high, low), 0xD8));
  } else {
    const __m256i low_a = sign_extend_byte(a), low_b = sign_extend_byte(b);
    const __m256i rest_a = _mm256_srai_epi32(_mm256_sub_epi32(a, low_a), 8);
    const __m256i rest_b = _mm256_srai_epi32(_mm256_sub_epi32(b, low_b), 8);
    const __m256i middle_a = sign_extend_byte(rest_a), middle_b = sign_extend_byte(rest_b);
    store_pieces<1>(_mm256_srai_epi32(_mm256_sub_epi32(rest_a, middle_a), 8),
                    _mm256_srai_epi32(_mm256_sub_epi32(rest_b, middle_b), 8), out);
    store_pieces<1>(middle_a, middle_b, out + 16);
    store_pieces<1>(low_a, low_b, out + 32);
  }
  return sum_lanes(_mm256_add_epi32(a, b));
}

// v >= 0 (or NaN, which stays) -> the nearest E4M3 value, ties to even, saturating at 448.
HB_ALWAYS_INLINE __m256 round_e4m3(__m256 v) {
  const __m256i b = bits(v);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(b, 20), set32(1));
  const __m256i up = _mm256_add_epi32(_mm256_add_epi32(b, set32(0x7FFFF)), odd);
  const __m256 normal = floats(_mm256_and_si256(up, set32(0xFFF00000u)));
  const __m256 shifter = _mm256_set1_ps(24576.0f);  // 1.5 * 2^14: its last place is 2^-9
  const __m256 small = _mm256_sub_ps(_mm256_add_ps(v, shifter), shifter);
  const __m256 rounded = _mm256_blendv_ps(normal, small, _mm256_cmp_ps(v, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ));
  const __m256 limited = _mm256_min_ps(rounded, _mm256_set1_ps(448.0f));
  return _mm256_blendv_ps(limited, v, _mm256_cmp_ps(v, v, _CMP_UNORD_Q));
}

// A magnitude -> the doubled E2M1 value it rounds to: 0 1 2 3 4 6 8 12, ties to the even code.
HB_ALWAYS_INLINE __m256i doubled_e2m1(__m256 v) {
  const auto above = [&](float border) __attribute__((always_inline)) {
    return bits(_mm256_cmp_ps(v, _mm256_set1_ps(border), _CMP_GT_OQ));  // -1 where true
  };
  const auto from = [&](float border) __attribute__((always_inline)) {
    return bits(_mm256_cmp_ps(v, _mm256_set1_ps(border), _CMP_GE_OQ));
  };
  const __m256i ones =
      _mm256_add_epi32(_mm256_add_epi32(above(0.25f), from(0.75f)), _mm256_add_epi32(above(1.25f), from(1.75f)));
  const __m256i twos = _mm256_add_epi32(above(2.5f), from(3.5f));
  const __m256i sum =
      _mm256_add_epi32(ones, _mm256_add_epi32(_mm256_add_epi32(twos, twos), _mm256_slli_epi32(above(5.0f), 2)));
  return _mm256_sub_epi32(_mm256_setzero_si256(), sum);
}

// The sign of x on a magnitude.
HB_ALWAYS_INLINE __m256i with_sign(__m256i magnitude, __m256 x) {
  return _mm256_sign_epi32(magnitude, _mm256_or_si256(bits(x), set32(1)));
}

HB_ALWAYS_INLINE __m256 magnitude(__m256 x) {
  return floats(abs_bits(x));
}

// Pointers into one row that is being written.
template <class L, int kPieces>
struct RowWriter {
  using Row = IntRow<L, kPieces>;
  float* alpha;
  int32_t* correction;
  float* scale;
  int8_t* pieces;

  static HB_ALWAYS_INLINE RowWriter at(std::byte* row, int64_t k) {
    return {reinterpret_cast<float*>(row), reinterpret_cast<int32_t*>(row + Row::kCorrectionOffset),
            reinterpret_cast<float*>(row + Row::scale_offset(k)),
            reinterpret_cast<int8_t*>(row + Row::pieces_offset(k))};
  }

  // Writes block b from the values of each 8 elements.
  HB_ALWAYS_INLINE void store_block(int64_t b, const __m256i (&v)[L::kBlock / 8]) {
    int8_t* out = pieces + b * L::kBlock * kPieces;
    int32_t sum = 0;
    for (int64_t part = 0; part < L::kBlock / 16; ++part) {
      sum += store_pieces<kPieces>(v[2 * part], v[2 * part + 1], out + part * 16 * kPieces);
    }
    correction[b] = -12 * sum;
  }
};

// Section 3.2. Scales: 2^(E-14), with the unit for NVFP4.
template <class L>
void quantize_a16(const float* x, int64_t rows, int64_t k, std::byte* out) {
  const int64_t blocks = Fp4Tiles<L>::blocks(k);
  for (int64_t m = 0; m < rows; ++m, x += k, out += IntRow<L, 2>::bytes(k)) {
    auto row = RowWriter<L, 2>::at(out, k);
    *row.alpha = 1.0f;
    for (int64_t b = 0; b < blocks; ++b) {
      auto e = Elements<L::kBlock>::load(x + b * L::kBlock, k - b * L::kBlock);
      const uint32_t exact_amax = e.amax_bits();  // before rounding, so that no NaN turns into something else
      for (__m256& v : e.v) {
        const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits(v), 16), set32(1));
        v = floats(
            _mm256_and_si256(_mm256_add_epi32(_mm256_add_epi32(bits(v), set32(0x7FFF)), odd), set32(0xFFFF0000u)));
      }
      // The largest value stays the largest when all are rounded, and that may raise its exponent, never lower it.
      const uint32_t amax = exact_amax + 0x7FFF + (exact_amax >> 16 & 1);
      const bool finite = amax < kInfinity;
      const uint32_t exponent = amax >> 23 > 63 ? amax >> 23 : 63;  // biased; E >= -64
      const uint32_t unit = L::kNvfp4 ? 1 : 0;                      // kUnit<2> is 2^-1
      row.scale[b] = float_of(finite ? (exponent - 14 - unit) << 23 : kNaN);
      const __m256 factor = _mm256_set1_ps(float_of(finite ? (268 - exponent) << 23 : 0));  // 2^(14-E)
      const __m256i keep = _mm256_set1_epi32(finite ? -1 : 0);
      __m256i values[L::kBlock / 8];
      for (int64_t i = 0; i < L::kBlock / 8; ++i) {
        const __m256i v = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(e.v[i], factor)), keep);
        values[i] = _mm256_max_epi32(_mm256_min_epi32(v, _mm256_set1_epi32(32639)), _mm256_set1_epi32(-32639));
      }
      row.store_block(b, values);
    }
  }
}

// First pass of the block formats: scale[b] = amax of block b, then eight at a time through `to_scale`, which returns
// the scale that is kept and the step that elements are divided by (left in `correction`, which the second pass
// overwrites).
struct ScaleAndStep {
  __m256 scale, step;
};
template <class L, int kPieces, class ToScale>
HB_ALWAYS_INLINE void make_scales(const float* x, int64_t k, const RowWriter<L, kPieces>& row,
                                  const ToScale& to_scale) {
  const int64_t blocks = Fp4Tiles<L>::blocks(k);
  for (int64_t b = 0; b < blocks; ++b) {
    row.scale[b] = float_of(Elements<L::kBlock>::load(x + b * L::kBlock, k - b * L::kBlock).amax_bits());
  }
  for (int64_t b = blocks; b % 8 != 0; ++b) row.scale[b] = 0.0f;  // the arrays are padded to 16
  for (int64_t b = 0; b < blocks; b += 8) {
    const ScaleAndStep s = to_scale(_mm256_loadu_ps(row.scale + b));
    _mm256_storeu_ps(row.scale + b, s.scale);
    _mm256_storeu_ps(reinterpret_cast<float*>(row.correction + b), s.step);
  }
}

template <class L, int kPieces>
HB_ALWAYS_INLINE float step_of(const RowWriter<L, kPieces>& row, int64_t b) {
  return float_of(static_cast<uint32_t>(row.correction[b]));
}

HB_ALWAYS_INLINE __m256 nan_where_not_finite(__m256 value, __m256 amax) {
  const __m256 bad = _mm256_cmp_ps(amax, floats(set32(kInfinity)), _CMP_NLT_UQ);  // infinity or NaN
  return _mm256_blendv_ps(value, floats(set32(kNaN)), bad);
}

void quantize_nvfp4_a4(const float* x, int64_t rows, int64_t k, float static_alpha, std::byte* out) {
  using L = Nvfp4Layout;
  const int64_t blocks = Fp4Tiles<L>::blocks(k);
  for (int64_t m = 0; m < rows; ++m, x += k, out += IntRow<L, 1>::bytes(k)) {
    auto row = RowWriter<L, 1>::at(out, k);
    float alpha = static_alpha;
    if (!(alpha > 0.0f)) {
      alpha = float_of(row_amax_bits(x, k)) / 2688.0f;
      if (alpha == 0.0f) alpha = 1.0f;
    }
    *row.alpha = alpha;
    make_scales(
        x, k, row, [alpha](__m256 amax) __attribute__((always_inline)) {
          const __m256 scale =
              nan_where_not_finite(round_e4m3(_mm256_div_ps(amax, _mm256_set1_ps(6.0f * alpha))), amax);
          return ScaleAndStep{_mm256_mul_ps(scale, _mm256_set1_ps(kUnit<1>)),
                              _mm256_mul_ps(scale, _mm256_set1_ps(alpha))};
        });
    for (int64_t b = 0; b < blocks; ++b) {
      const auto e = Elements<L::kBlock>::load(x + b * L::kBlock, k - b * L::kBlock);
      const __m256 step = _mm256_set1_ps(step_of(row, b));
      const __m256i usable = bits(_mm256_cmp_ps(step, _mm256_setzero_ps(), _CMP_GT_OQ));
      __m256i values[2];
      for (int i = 0; i < 2; ++i) {
        const __m256i v = doubled_e2m1(magnitude(_mm256_div_ps(e.v[i], step)));
        values[i] = _mm256_and_si256(with_sign(v, e.v[i]), usable);
      }
      row.store_block(b, values);
    }
  }
}

// A power-of-two scale: byte = max((amax bits + round) >> 23 - emax, 0); the step is its reciprocal, for a
// multiplication. A zero block has scale 1: its sums are 0.
template <uint32_t kRound, int kEmax>
HB_ALWAYS_INLINE ScaleAndStep e8m0_scale(__m256 amax) {
  const __m256i up = _mm256_srli_epi32(_mm256_add_epi32(bits(amax), set32(kRound)), 23);
  const __m256i raw = _mm256_max_epi32(_mm256_sub_epi32(up, _mm256_set1_epi32(kEmax)), _mm256_setzero_si256());
  const __m256i is_zero = _mm256_cmpeq_epi32(bits(amax), _mm256_setzero_si256());
  const __m256i byte = _mm256_blendv_epi8(raw, _mm256_set1_epi32(127), is_zero);
  const __m256i scale = _mm256_max_epi32(_mm256_slli_epi32(byte, 23), set32(0x00400000u));  // byte 0 is 2^-127
  const __m256i reciprocal = _mm256_slli_epi32(_mm256_sub_epi32(_mm256_set1_epi32(254), byte), 23);
  return {nan_where_not_finite(floats(scale), amax), nan_where_not_finite(floats(reciprocal), amax)};
}

// x / scale -> the E4M3 value times 512, an integer.
HB_ALWAYS_INLINE __m256i e4m3_times_512(__m256 scaled) {
  const __m256i v = _mm256_cvtps_epi32(_mm256_mul_ps(round_e4m3(magnitude(scaled)), _mm256_set1_ps(512.0f)));
  return with_sign(v, scaled);
}

void quantize_nvfp4_a8(const float* x, int64_t rows, int64_t k, float static_scale, std::byte* out) {
  using L = Nvfp4Layout;
  const int64_t blocks = Fp4Tiles<L>::blocks(k);
  for (int64_t m = 0; m < rows; ++m, x += k, out += IntRow<L, 3>::bytes(k)) {
    auto row = RowWriter<L, 3>::at(out, k);
    const uint32_t amax = row_amax_bits(x, k);
    const bool finite = amax < kInfinity;
    float scale = static_scale;
    if (!(scale > 0.0f)) {
      scale = float_of(amax) / 448.0f;
      if (scale == 0.0f) scale = 1.0f;
    }
    *row.alpha = finite ? scale : float_of(kNaN);
    const __m256i usable = _mm256_set1_epi32(finite ? -1 : 0);
    for (int64_t b = 0; b < blocks; ++b) {
      const auto e = Elements<L::kBlock>::load(x + b * L::kBlock, k - b * L::kBlock);
      __m256i values[2];
      for (int i = 0; i < 2; ++i) {
        values[i] = _mm256_and_si256(e4m3_times_512(_mm256_div_ps(e.v[i], _mm256_set1_ps(scale))), usable);
      }
      row.scale[b] = kUnit<3>;
      row.store_block(b, values);
    }
  }
}

// Power-of-two scales by `to_scale`, values by `to_integer` of x / scale.
template <int kPieces, class ToScale, class ToInteger>
HB_ALWAYS_INLINE void quantize_mxfp4(const float* x, int64_t rows, int64_t k, std::byte* out, const ToScale& to_scale,
                                     const ToInteger& to_integer) {
  using L = Mxfp4Layout;
  const int64_t blocks = Fp4Tiles<L>::blocks(k);
  for (int64_t m = 0; m < rows; ++m, x += k, out += IntRow<L, kPieces>::bytes(k)) {
    auto row = RowWriter<L, kPieces>::at(out, k);
    *row.alpha = 1.0f;
    make_scales(x, k, row, to_scale);
    for (int64_t b = 0; b < blocks; ++b) {
      const auto e = Elements<L::kBlock>::load(x + b * L::kBlock, k - b * L::kBlock);
      const float reciprocal = step_of(row, b);
      const __m256i usable = _mm256_set1_epi32(reciprocal == reciprocal ? -1 : 0);
      __m256i values[4];
      for (int i = 0; i < 4; ++i) {
        values[i] = _mm256_and_si256(to_integer(_mm256_mul_ps(e.v[i], _mm256_set1_ps(reciprocal))), usable);
      }
      row.store_block(b, values);
    }
  }
}

void quantize_mxfp4_a4(const float* x, int64_t rows, int64_t k, std::byte* out) {
  // round74: a significand of 1.75 or more carries into the exponent.
  quantize_mxfp4<1>(
      x, rows, k, out, [](__m256 amax) __attribute__((always_inline)) { return e8m0_scale<0x200000u, 2>(amax); },
      [](__m256 v) __attribute__((always_inline)) { return with_sign(doubled_e2m1(magnitude(v)), v); });
}

void quantize_mxfp4_a8(const float* x, int64_t rows, int64_t k, std::byte* out) {
  quantize_mxfp4<3>(
      x, rows, k, out, [](__m256 amax) __attribute__((always_inline)) { return e8m0_scale<0, 8>(amax); },
      [](__m256 v) __attribute__((always_inline)) { return e4m3_times_512(v); });
}

}  // namespace

size_t nvfp4_a16_bytes(int64_t k) {
  return static_cast<size_t>(IntRow<Nvfp4Layout, 2>::bytes(k));
}
size_t nvfp4_a8_bytes(int64_t k) {
  return static_cast<size_t>(IntRow<Nvfp4Layout, 3>::bytes(k));
}
size_t nvfp4_a4_bytes(int64_t k) {
  return static_cast<size_t>(IntRow<Nvfp4Layout, 1>::bytes(k));
}
size_t mxfp4_a16_bytes(int64_t k) {
  return static_cast<size_t>(IntRow<Mxfp4Layout, 2>::bytes(k));
}
size_t mxfp4_a8_bytes(int64_t k) {
  return static_cast<size_t>(IntRow<Mxfp4Layout, 3>::bytes(k));
}
size_t mxfp4_a4_bytes(int64_t k) {
  return static_cast<size_t>(IntRow<Mxfp4Layout, 1>::bytes(k));
}

void quantize_nvfp4_a16_avx2(const float* x, int64_t rows, int64_t k, float, std::byte* out) {
  quantize_a16<Nvfp4Layout>(x, rows, k, out);
}
void quantize_mxfp4_a16_avx2(const float* x, int64_t rows, int64_t k, float, std::byte* out) {
  quantize_a16<Mxfp4Layout>(x, rows, k, out);
}
void quantize_nvfp4_a8_avx2(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
  quantize_nvfp4_a8(x, rows, k, alpha, out);
}
void quantize_mxfp4_a8_avx2(const float* x, int64_t rows, int64_t k, float, std::byte* out) {
  quantize_mxfp4_a8(x, rows, k, out);
}
void quantize_nvfp4_a4_avx2(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
  quantize_nvfp4_a4(x, rows, k, alpha, out);
}
void quantize_mxfp4_a4_avx2(const float* x, int64_t rows, int64_t k, float, std::byte* out) {
  quantize_mxfp4_a4(x, rows, k, out);
}

}  // namespace halfbyte::cpu
