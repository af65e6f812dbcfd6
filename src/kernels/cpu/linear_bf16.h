// y = x W^T for BF16 and FP32 weights (docs/numerics.md 3.3), once for both vector widths: `Isa` supplies the vectors.
//
// Bytes moved: n * k * sizeof(weight) once for every two tokens (once for one). The 32 partial sums by k mod 32 are
// Isa::kVectors vectors; the fold and the tail are the contract's.
#pragma once

#include "kernels/api.h"
#include "kernels/cpu/bf16_rows.h"

namespace halfbyte::cpu {

template <class Isa, WeightFormat kFormat>
struct LinearPlain {
  using Weight = std::conditional_t<kFormat == WeightFormat::kBF16, uint16_t, float>;
  using Sums = typename Isa::Sums;  // the 32 partial sums
  static constexpr bool kBf16 = kFormat == WeightFormat::kBF16;
  static constexpr int64_t kMaxTokens = 8;
  static constexpr int64_t kPrefetchBytes = 2048;

  static HB_ALWAYS_INLINE float weight_value(const Weight* w) {
    if constexpr (!kBf16) return *w;
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

  // kRows weight rows against kTokens activation rows, all sums in registers.
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
          __builtin_prefetch(reinterpret_cast<const char*>(at) + kPrefetchBytes + line);
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

  static void run(const std::byte* packed, float, const float* bias, int64_t, int64_t k, const std::byte* activations,
                  int64_t rows, int64_t n_begin, int64_t n_end, float* y, int64_t ldy) {
    const auto* w = reinterpret_cast<const Weight*>(packed);
    const auto* x = reinterpret_cast<const float*>(activations);
    const int64_t w_stride = weight_stride<Weight>(k), x_stride = activation_stride(k);
    const auto store = [&](int64_t m, int64_t r, float dot)
                           HB_INLINE_LAMBDA { y[m * ldy + r] = bias != nullptr ? dot + bias[r] : dot; };
    int64_t r = n_begin;
    if (rows == 1) {
      for (; r + 2 <= n_end; r += 2) {
        float out[2][1];
        dots<2, 1>(w + r * w_stride, w_stride, x, x_stride, k, out);
        store(0, r, out[0][0]);
        store(0, r + 1, out[1][0]);
      }
    }
    for (; r < n_end; ++r) {
      int64_t m = 0;
      for (; m + 2 <= rows; m += 2) {
        float out[1][2];
        dots<1, 2>(w + r * w_stride, w_stride, x + m * x_stride, x_stride, k, out);
        store(m, r, out[0][0]);
        store(m + 1, r, out[0][1]);
      }
      if (m < rows) {
        float out[1][1];
        dots<1, 1>(w + r * w_stride, w_stride, x + m * x_stride, x_stride, k, out);
        store(m, r, out[0][0]);
      }
    }
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
