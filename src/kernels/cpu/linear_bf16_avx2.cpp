// y = x W^T for BF16 and FP32 weights on AVX2 (docs/numerics.md 3.3). A weight row is read as it is stored; the 32
// partial sums by k mod 32 are four vectors. Bytes moved: n * k * sizeof(weight) once for every two tokens (once for
// one).
//
// BF16 values are widened without shuffles: even k by a shift, odd k by a mask. So the activations beside BF16 weights
// lie, in each run of 32, as 16 even k then 16 odd k; the k beyond the last whole run are in plain order.
#include <immintrin.h>

#include "kernels/cpu/fp4_layout.h"
#include "kernels/cpu/to_bf16_avx2.h"
#include "kernels/kernel_lists.h"

namespace halfbyte::cpu {
namespace {

constexpr int64_t kRun = 32;
constexpr int64_t kMaxTokens = 8;
constexpr int64_t kPrefetchBytes = 2048;

struct Four {
  __m256 v[4];
};

// The order of the 32 partial sums in four vectors, widening of 32 weights into it, and the fold.
struct Bf16 {
  using Weight = uint16_t;
  static constexpr WeightFormat kFormat = WeightFormat::kBF16;
  // Logical lane of element i of vector v: even k of both halves, then odd k.
  static HB_ALWAYS_INLINE int64_t lane(int64_t v, int64_t i) { return v % 2 * 16 + 2 * i + v / 2; }

  static HB_ALWAYS_INLINE Four widen(const uint16_t* w) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w + 16));
    const __m256i odd = _mm256_set1_epi32(static_cast<int32_t>(0xFFFF0000u));
    return {{_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)),
             _mm256_castsi256_ps(_mm256_and_si256(a, odd)), _mm256_castsi256_ps(_mm256_and_si256(b, odd))}};
  }

  static HB_ALWAYS_INLINE float widen_one(const uint16_t* w) {
    const uint32_t bits = static_cast<uint32_t>(*w) << 16;
    float f;
    __builtin_memcpy(&f, &bits, 4);
    return f;
  }

  static HB_ALWAYS_INLINE float fold(const Four& s) {
    const __m256 even = _mm256_add_ps(s.v[0], s.v[1]), odd = _mm256_add_ps(s.v[2], s.v[3]);  // 16: lane i + lane i+16
    __m128 e = _mm_add_ps(_mm256_castps256_ps128(even), _mm256_extractf128_ps(even, 1));     // 8
    __m128 o = _mm_add_ps(_mm256_castps256_ps128(odd), _mm256_extractf128_ps(odd, 1));
    e = _mm_add_ps(e, _mm_movehl_ps(e, e));  // 4
    o = _mm_add_ps(o, _mm_movehl_ps(o, o));
    e = _mm_add_ss(e, _mm_movehdup_ps(e));  // 2
    o = _mm_add_ss(o, _mm_movehdup_ps(o));
    return _mm_cvtss_f32(_mm_add_ss(e, o));  // 1
  }

  static HB_ALWAYS_INLINE void arrange(const float* x, float* out) {
    for (int64_t i = 0; i < 16; ++i) {
      out[i] = x[2 * i];
      out[16 + i] = x[2 * i + 1];
    }
  }
};

struct F32 {
  using Weight = float;
  static constexpr WeightFormat kFormat = WeightFormat::kF32;
  static HB_ALWAYS_INLINE int64_t lane(int64_t v, int64_t i) { return 8 * v + i; }

  static HB_ALWAYS_INLINE Four widen(const float* w) {
    return {{_mm256_loadu_ps(w), _mm256_loadu_ps(w + 8), _mm256_loadu_ps(w + 16), _mm256_loadu_ps(w + 24)}};
  }
  static HB_ALWAYS_INLINE float widen_one(const float* w) { return *w; }

  static HB_ALWAYS_INLINE float fold(const Four& s) {
    const __m256 a = _mm256_add_ps(_mm256_add_ps(s.v[0], s.v[2]), _mm256_add_ps(s.v[1], s.v[3]));  // 16, 8
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));                 // 4
    b = _mm_add_ps(b, _mm_movehl_ps(b, b));                                                        // 2
    return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));                                       // 1
  }

  static HB_ALWAYS_INLINE void arrange(const float* x, float* out) {
    for (int64_t i = 0; i < kRun; ++i) out[i] = x[i];
  }
};

template <class W, bool kRound>
struct Linear {
  using Weight = typename W::Weight;

  static HB_ALWAYS_INLINE int64_t row_stride(int64_t k) {
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(Weight));
    return (k + kLine - 1) / kLine * kLine;
  }
  static HB_ALWAYS_INLINE int64_t x_stride(int64_t k) { return (k + 15) / 16 * 16; }

  static size_t packed_bytes(int64_t n, int64_t k) { return static_cast<size_t>(n * row_stride(k)) * sizeof(Weight); }

  static void pack(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed) {
    const size_t from = static_cast<size_t>(w.k) * sizeof(Weight),
                 to = static_cast<size_t>(row_stride(w.k)) * sizeof(Weight);
    for (int64_t r = n_begin; r < n_end; ++r) {
      __builtin_memcpy(packed + static_cast<size_t>(r) * to, w.codes.as<std::byte>() + static_cast<size_t>(r) * from,
                       from);
    }
  }

  static size_t activation_bytes(int64_t k) { return static_cast<size_t>(x_stride(k)) * sizeof(float); }

  static void quantize(const float* x, int64_t rows, int64_t k, float, std::byte* out) {
    for (int64_t m = 0; m < rows; ++m, x += k) {
      auto* row = reinterpret_cast<float*>(out + static_cast<size_t>(m) * activation_bytes(k));
      int64_t i = 0;
      alignas(32) float rounded[kRun];
      for (; i + kRun <= k; i += kRun) {
        for (int64_t j = 0; j < kRun; j += 8) {
          const __m256 v = _mm256_loadu_ps(x + i + j);
          _mm256_store_ps(rounded + j, kRound ? round_to_bf16(v) : v);
        }
        W::arrange(rounded, row + i);
      }
      for (; i < k; ++i) row[i] = kRound ? _mm256_cvtss_f32(round_to_bf16(_mm256_set1_ps(x[i]))) : x[i];
      for (; i < x_stride(k); ++i) row[i] = 0.0f;
    }
  }

  // The k beyond the last run of 32, lane by lane, then the fold.
  static float finish_tail(const Four& sums, const Weight* w, const float* x, int64_t count) {
    float lanes[kRun];
    for (int64_t v = 0; v < 4; ++v) {
      alignas(32) float eight[8];
      _mm256_store_ps(eight, sums.v[v]);
      for (int64_t i = 0; i < 8; ++i) lanes[W::lane(v, i)] = eight[i];
    }
    for (int64_t i = 0; i < count; ++i) lanes[i] = __builtin_fmaf(x[i], W::widen_one(w + i), lanes[i]);
    for (int64_t half = kRun / 2; half > 0; half /= 2) {
      for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
  }

  // kRows weight rows against kTokens activation rows: kRows * kTokens * 4 sums in registers.
  template <int kRows, int kTokens>
  static HB_ALWAYS_INLINE void dots(const Weight* w, int64_t w_stride, const float* x, int64_t x_row, int64_t k,
                                    float (&out)[kRows][kTokens]) {
    Four sums[kRows][kTokens];
    for (auto& row : sums) {
      for (Four& s : row) {
        for (__m256& v : s.v) v = _mm256_setzero_ps();
      }
    }
    int64_t i = 0;
    for (; i + kRun <= k; i += kRun) {
      for (int r = 0; r < kRows; ++r) {
        const Weight* at = w + r * w_stride + i;
        for (size_t line = 0; line < kRun * sizeof(Weight); line += 64) {
          _mm_prefetch(reinterpret_cast<const char*>(at) + kPrefetchBytes + line, _MM_HINT_T0);
        }
        const Four values = W::widen(at);
        for (int t = 0; t < kTokens; ++t) {
          for (int v = 0; v < 4; ++v) {
            sums[r][t].v[v] = _mm256_fmadd_ps(_mm256_load_ps(x + t * x_row + i + 8 * v), values.v[v], sums[r][t].v[v]);
          }
        }
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTokens; ++t) {
        out[r][t] =
            i == k ? W::fold(sums[r][t]) : finish_tail(sums[r][t], w + r * w_stride + i, x + t * x_row + i, k - i);
      }
    }
  }

  static void run(const std::byte* packed, float, const float* bias, int64_t, int64_t k, const std::byte* activations,
                  int64_t rows, int64_t n_begin, int64_t n_end, float* y, int64_t ldy) {
    const auto* w = reinterpret_cast<const Weight*>(packed);
    const auto* x = reinterpret_cast<const float*>(activations);
    const int64_t w_stride = row_stride(k), x_row = x_stride(k);
    const auto store = [&](int64_t m, int64_t r, float dot) __attribute__((always_inline)) {
      y[m * ldy + r] = bias != nullptr ? dot + bias[r] : dot;
    };
    int64_t r = n_begin;
    if (rows == 1) {
      for (; r + 2 <= n_end; r += 2) {
        float out[2][1];
        dots<2, 1>(w + r * w_stride, w_stride, x, x_row, k, out);
        store(0, r, out[0][0]);
        store(0, r + 1, out[1][0]);
      }
    }
    for (; r < n_end; ++r) {
      int64_t m = 0;
      for (; m + 2 <= rows; m += 2) {
        float out[1][2];
        dots<1, 2>(w + r * w_stride, w_stride, x + m * x_row, x_row, k, out);
        store(m, r, out[0][0]);
        store(m + 1, r, out[0][1]);
      }
      if (m < rows) {
        float out[1][1];
        dots<1, 1>(w + r * w_stride, w_stride, x + m * x_row, x_row, k, out);
        store(m, r, out[0][0]);
      }
    }
  }

  static constexpr LinearKernel kernel(std::string_view name) {
    return {name,
            Isa::kAvx2,
            W::kFormat,
            kRound ? ActivationMode::kA16 : ActivationMode::kF32,
            /*row_tile=*/2,
            kMaxTokens,
            &packed_bytes,
            &pack,
            &activation_bytes,
            &quantize,
            &run};
  }
};

}  // namespace

std::span<const LinearKernel> linear_bf16_avx2() {
  static constexpr LinearKernel kKernels[] = {
      Linear<F32, false>::kernel("linear_f32_f32_avx2"),
      Linear<F32, true>::kernel("linear_f32_a16_avx2"),
      Linear<Bf16, false>::kernel("linear_bf16_f32_avx2"),
      Linear<Bf16, true>::kernel("linear_bf16_a16_avx2"),
  };
  return kKernels;
}

}  // namespace halfbyte::cpu
