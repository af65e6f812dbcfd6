// y = x W^T for BF16, FP8 and FP32 weights (docs/numerics.md 3.3), once for both vector widths: `Isa` supplies the vectors.
//
// Bytes moved: n * k * sizeof(weight) once, and from the caches once more for every group of tokens whose sums
// (Isa::kSums of them) are in registers. The 32 partial sums by k mod 32 are a few vectors; the fold and the tail are the
// contract's.
#pragma once

#include <immintrin.h>

#include "kernels/api.h"
#include "kernels/cpu/bf16_rows.h"
#include "kernels/cpu/kv_codes.h"

namespace halfbyte::cpu {

// What is left of a fold when lanes i and i + 8 have been added: 4, 2, 1.
HB_ALWAYS_INLINE __m128 add_halves(__m256 v) {
  return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
HB_ALWAYS_INLINE float fold8(__m256 v) {
  __m128 b = add_halves(v);
  b = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
// The same when even and odd lanes lie apart: they meet in the last step.
HB_ALWAYS_INLINE float fold8(__m256 even8, __m256 odd8) {
  __m128 even = add_halves(even8), odd = add_halves(odd8);  // 8
  even = _mm_add_ps(even, _mm_movehl_ps(even, even));       // 4
  odd = _mm_add_ps(odd, _mm_movehl_ps(odd, odd));
  even = _mm_add_ss(even, _mm_movehdup_ps(even));  // 2
  odd = _mm_add_ss(odd, _mm_movehdup_ps(odd));
  return _mm_cvtss_f32(_mm_add_ss(even, odd));  // 1
}

template <class Isa, WeightFormat kFormat>
struct LinearPlain {
  static constexpr bool kFp8 = kFormat == WeightFormat::kFP8;
  using Weight = std::conditional_t<kFormat == WeightFormat::kBF16, uint16_t, std::conditional_t<kFp8, uint8_t, float>>;
  using Sums = typename Isa::Sums;  // the 32 partial sums
  static constexpr bool kBf16 = kFormat == WeightFormat::kBF16;
  static constexpr int64_t kMaxTokens = 8;
  static constexpr int64_t kActivationBytes = 32 << 10;  // that stay in the first-level cache beside the weights
  static constexpr int64_t kBlockRows = 16;              // and as many of the other half
  // Asked for ahead of their use: weights of single rows, and of pairs into the first- and second-level cache.
  static constexpr int64_t kPrefetchBytes = 2048, kNearBytes = 1152, kFarBytes = 4608;

  static HB_ALWAYS_INLINE float weight_value(const Weight* w) {
    if constexpr (kFp8) return kHalfE4M3.of[*w] * 0x1p-7f;
    if constexpr (kFormat == WeightFormat::kF32) return *w;
    const uint32_t bits = static_cast<uint32_t>(*w) << 16;
    float f;
    __builtin_memcpy(&f, &bits, 4);
    return f;
  }

  // The k beyond the last run of 32, lane by lane, then the fold.
  static HB_ALWAYS_INLINE float finish_tail(const Sums& sums, const Weight* w, const float* x, int64_t count) {
    float in_order[kRun], lanes[kRun];
    Isa::store(sums, in_order);
    for (int64_t i = 0; i < kRun; ++i) lanes[kBf16 ? (i < 16 ? 2 * i : 2 * i - 31) : i] = in_order[i];
    for (int64_t i = 0; i < count; ++i) lanes[i] = __builtin_fmaf(x[i], weight_value(w + i), lanes[i]);
    for (int64_t half = kRun / 2; half > 0; half /= 2) {
      for (int64_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
    }
    return lanes[0];
  }

  // kRows weight rows, `w_stride` apart, against kTokens activation rows, all sums in registers.
  template <int kRows, int kTokens>
  static HB_ALWAYS_INLINE void dots(const Weight* w, int64_t w_stride, const float* x, int64_t x_stride, int64_t k,
                                    float (&out)[kRows][kTokens]) {
    Sums sums[kRows][kTokens];
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTokens; ++t) sums[r][t] = Isa::zero();
    }
    int64_t i = 0;
    for (; i + kRun <= k; i += kRun) {
      for (int r = 0; r < kRows; ++r) {
        const Weight* at = w + r * w_stride + i;
        for (size_t line = 0; line < kRun * sizeof(Weight); line += 64) {
          const char* ahead = reinterpret_cast<const char*>(at) + line;
          if constexpr (kRows == 1) {
            _mm_prefetch(ahead + kPrefetchBytes, _MM_HINT_T0);
          } else {
            _mm_prefetch(ahead + kNearBytes, _MM_HINT_T0);
            _mm_prefetch(ahead + kFarBytes, _MM_HINT_T1);
          }
        }
        const Sums values = Isa::widen(at);
        for (int t = 0; t < kTokens; ++t) Isa::multiply_add(x + t * x_stride + i, values, sums[r][t]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      for (int t = 0; t < kTokens; ++t) {
        out[r][t] = i < k   ? finish_tail(sums[r][t], w + r * w_stride + i, x + t * x_stride + i, k - i)
                    : kBf16 ? Isa::fold_even_odd(sums[r][t])
                            : Isa::fold(sums[r][t]);
      }
    }
  }

  static HB_ALWAYS_INLINE void store(const LinearCall& call, int64_t m, int64_t r, float dot) {
    if constexpr (kFp8) {
      const std::byte* scales = call.packed + call.n * weight_stride<Weight>(call.k);
      dot *= reinterpret_cast<const float*>(scales)[r];
    }
    call.y[m * call.ldy + r] = call.bias != nullptr ? dot + call.bias[r] : dot;
  }

  // kRows weight rows, `apart` rows from one to the next, against tokens [m, m + kTokens).
  template <int kRows, int kTokens>
  static HB_ALWAYS_INLINE void rows_at(const LinearCall& call, int64_t r, int64_t apart, int64_t m) {
    const int64_t w_stride = weight_stride<Weight>(call.k), x_stride = activation_stride(call.k);
    const auto* w = reinterpret_cast<const Weight*>(call.packed) + r * w_stride;
    const auto* x = reinterpret_cast<const float*>(call.activations) + m * x_stride;
    float out[kRows][kTokens];
    dots<kRows, kTokens>(w, apart * w_stride, x, x_stride, call.k, out);
    for (int i = 0; i < kRows; ++i) {
      for (int t = 0; t < kTokens; ++t) store(call, m + t, r + i * apart, out[i][t]);
    }
  }

  // Two rows at a time, the second `part` behind the first, for enough sums that do not wait for each other: far apart, so
  // that each is a stream of memory of its own and what is asked for ahead is not what the other reads now.
  template <int kTokens>
  static HB_ALWAYS_INLINE void pairs(const LinearCall& call, int64_t begin, int64_t end, int64_t part, int64_t m) {
    if constexpr (2 * kTokens <= Isa::kSums) {
      for (int64_t r = begin; r < end; ++r) rows_at<2, kTokens>(call, r, part, m);
    } else {
      for (int64_t r = begin; r < end; ++r) rows_at<1, kTokens>(call, r, 0, m);
      for (int64_t r = begin + part; r < end + part; ++r) rows_at<1, kTokens>(call, r, 0, m);
    }
  }

  // Weight row r against all tokens.
  static HB_ALWAYS_INLINE void row(const LinearCall& call, int64_t r) {
    int64_t m = 0;
    if constexpr (Isa::kSums >= 8) {
      for (; m + 8 <= call.rows; m += 8) rows_at<1, 8>(call, r, 0, m);
      for (; m + 4 <= call.rows; m += 4) rows_at<1, 4>(call, r, 0, m);
    }
    for (; m + 2 <= call.rows; m += 2) rows_at<1, 2>(call, r, 0, m);
    for (; m < call.rows; ++m) rows_at<1, 1>(call, r, 0, m);
  }

  // Tokens whose activations do not fit the first-level cache together: those of a group do while it passes over a block of
  // rows, which the next group finds in the second-level cache.
  static HB_ALWAYS_INLINE void block(const LinearCall& call, int64_t begin, int64_t end, int64_t part) {
    int64_t m = 0;
    if constexpr (Isa::kSums >= 8) {
      for (; m + 4 <= call.rows; m += 4) pairs<4>(call, begin, end, part, m);
    }
    for (; m + 2 <= call.rows; m += 2) pairs<2>(call, begin, end, part, m);
    for (; m < call.rows; ++m) pairs<1>(call, begin, end, part, m);
  }

  static void run(const LinearCall& call) {
    const int64_t part = (call.n_end - call.n_begin) / 2, middle = call.n_begin + part;
    int64_t r = call.n_begin;
    if (call.rows == 1) {
      pairs<1>(call, r, middle, part, 0);
      r = middle + part;
    } else if (!kFp8 && call.rows * activation_stride(call.k) * 4 > kActivationBytes) {  // FP8 is costly to widen twice
      for (; r < middle; r += kBlockRows) block(call, r, middle - r < kBlockRows ? middle : r + kBlockRows, part);
      r = middle + part;
    }
    for (; r < call.n_end; ++r) row(call, r);
  }

  template <bool kRound>
  static constexpr LinearKernel kernel(std::string_view name, halfbyte::Isa isa) {
    return {name,
            isa,
            kFormat,
            kRound ? ActivationMode::kA16 : ActivationMode::kF32,
            /*row_tile=*/2,
            kMaxTokens,
            &plain_packed_bytes<kFormat>,
            &pack_plain<kFormat>,
            &plain_activation_bytes,
            &arrange_plain<kFormat, kRound>,
            &run};
  }
};

}  // namespace halfbyte::cpu
