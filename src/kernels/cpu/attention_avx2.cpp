// attention_tiles.h on AVX2.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_tiles.h"
#include "kernels/cpu/exp32_avx2.h"

namespace halfbyte::cpu {
namespace {

struct Avx2 : EightFloats {
  struct Sixteen {
    __m256 low, high;
  };
  struct Words {
    __m256i low, high;
  };

  // Vectors of a tile that kRows rows take at once: sums, factors and vectors in 16 registers.
  template <int kRows>
  static constexpr int vectors() {
    return kRows <= 3 ? 4 : 2;
  }

  static HB_ALWAYS_INLINE Floats zero() { return _mm256_setzero_ps(); }
  static HB_ALWAYS_INLINE Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }

  static HB_ALWAYS_INLINE Sixteen load16(const float* p) { return {load(p), load(p + 8)}; }
  static HB_ALWAYS_INLINE void store16(float* p, Sixteen v) {
    store(p, v.low);
    store(p + 8, v.high);
  }
  static HB_ALWAYS_INLINE Sixteen times(Sixteen v, Sixteen w) { return {mul(v.low, w.low), mul(v.high, w.high)}; }
  static HB_ALWAYS_INLINE Sixteen times(Sixteen v, float x) { return {mul(v.low, set(x)), mul(v.high, set(x))}; }

  static HB_ALWAYS_INLINE Words load_words(const std::byte* p) { return {load256(p), load256(p + 32)}; }
  static HB_ALWAYS_INLINE Sixteen low_bf16(Words w) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(w.low, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(w.high, 16))};
  }
  static HB_ALWAYS_INLINE Sixteen high_bf16(Words w) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u));
    return {_mm256_castsi256_ps(_mm256_and_si256(w.low, mask)), _mm256_castsi256_ps(_mm256_and_si256(w.high, mask))};
  }
  static HB_ALWAYS_INLINE Sixteen from_bf16(__m256i v) {
    const auto widen = [](__m128i half) HB_INLINE_LAMBDA {
      return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
    };
    return {widen(_mm256_castsi256_si128(v)), widen(_mm256_extracti128_si256(v, 1))};
  }
  static HB_ALWAYS_INLINE Sixteen from_f16(__m256i v) {
    return {_mm256_cvtph_ps(_mm256_castsi256_si128(v)), _mm256_cvtph_ps(_mm256_extracti128_si256(v, 1))};
  }
  static HB_ALWAYS_INLINE Sixteen from_i8(__m128i v) {
    const auto widen = [](__m128i eight) HB_INLINE_LAMBDA { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(eight)); };
    return {widen(v), widen(_mm_unpackhi_epi64(v, v))};
  }

  // Scores -> weights in place, their largest score and their sum. Places up to the next multiple of 16 are overwritten.
  static void softmax(float* p, int64_t count, float* largest, float* sum) {
    constexpr float kMinusInfinity = -__builtin_inff();
    for (int64_t j = count; j % 16 != 0; ++j) p[j] = kMinusInfinity;
    __m256 m = set(kMinusInfinity);
    for (int64_t j = 0; j < count; j += 8) m = _mm256_max_ps(load(p + j), m);  // a NaN leaves m as it is
    alignas(32) float lanes[8];
    _mm256_store_ps(lanes, m);
    float max = lanes[0];
    for (float v : lanes) max = v > max ? v : max;
    __m256 sums = zero();
    for (int64_t j = 0; j < count; j += 8) {
      const __m256 e = exp32(_mm256_sub_ps(load(p + j), set(max)));
      store(p + j, e);
      sums = add(sums, e);  // the padding adds 0
    }
    *largest = max;
    *sum = fold8(sums);
  }
};

}  // namespace

void attention_rows_avx2(const KvView& kv, const AttentionRows& rows, float* scratch) {
  attention_rows<Avx2>(kv, rows, scratch);
}
void attention_cut_avx2(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial) {
  attention_cut<Avx2>(kv, rows, cut, scratch, partial);
}
void attention_merge_avx2(float* partials, int64_t cuts, int64_t group, int64_t head_dim, float* out) {
  attention_merge<Avx2>(partials, cuts, group, head_dim, out);
}

}  // namespace halfbyte::cpu
