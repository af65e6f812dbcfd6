// y = x W^T for BF16, FP8 and FP32 weights (docs/numerics.md 3.3): 32 partial sums by k mod 32, fma in ascending k, folded;
// FP8: of value * 2^-8, then times 2^8 times the row's scale.
#include <cmath>
#include <cstring>

#include "formats/bf16.h"
#include "formats/e4m3.h"
#include "kernels/kernel_lists.h"
#include "kernels/ref/fold.h"
#include "kernels/ref/plain_rows.h"

namespace halfbyte::ref {
namespace {

constexpr int kLanes = 32;

float weight_value(uint16_t code) {
  return BF16::decode(code);
}
float weight_value(uint8_t code) {
  return E4M3::decode(code) * 0x1p-8f;
}
float weight_value(float value) {
  return value;
}

// Weight: uint16_t (BF16), uint8_t (FP8) or float. kRound: x is rounded to BF16.
template <class Weight, bool kRound>
struct Linear {
  static constexpr WeightFormat kFormat = sizeof(Weight) == 4   ? WeightFormat::kF32
                                          : sizeof(Weight) == 2 ? WeightFormat::kBF16
                                                                : WeightFormat::kFP8;
  static constexpr bool kFp8 = kFormat == WeightFormat::kFP8;

  static size_t packed_bytes(int64_t n, int64_t k) {
    return kFp8 ? normal_form_scales_offset(kFormat, n, k) + static_cast<size_t>(n) * sizeof(float)
                : PlainRows<Weight>::packed_bytes(n, k);
  }

  static void pack(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed) {
    PlainRows<Weight>::pack(w, n_begin, n_end, packed);
    if (!kFp8) return;
    auto* scales = reinterpret_cast<float*>(packed + normal_form_scales_offset(kFormat, w.n, w.k));
    std::memcpy(scales + n_begin, w.block_scales.as<float>() + n_begin, (n_end - n_begin) * sizeof(float));
  }

  static size_t activation_bytes(int64_t k) { return align_up(k * sizeof(float)); }

  static void quantize(const float* x, int64_t rows, int64_t k, float, std::byte* out) {
    for (int64_t m = 0; m < rows; ++m) {
      auto* row = reinterpret_cast<float*>(out + m * activation_bytes(k));
      for (int64_t i = 0; i < k; ++i) row[i] = kRound ? BF16::round(x[m * k + i]) : x[m * k + i];
    }
  }

  static float dot(const Weight* w, const float* x, int64_t k) {
    float sums[kLanes] = {};
    for (int64_t i = 0; i < k; ++i) sums[i % kLanes] = std::fma(x[i], weight_value(w[i]), sums[i % kLanes]);
    return fold(sums);
  }

  static void run(const LinearCall& call) {
    const auto* w = reinterpret_cast<const Weight*>(call.packed);
    const auto* scales =
        reinterpret_cast<const float*>(call.packed + (kFp8 ? normal_form_scales_offset(kFormat, call.n, call.k) : 0));
    for (int64_t m = 0; m < call.rows; ++m) {
      const auto* x = reinterpret_cast<const float*>(call.activations + m * activation_bytes(call.k));
      for (int64_t r = call.n_begin; r < call.n_end; ++r) {
        float out = dot(w + r * call.k, x, call.k);
        if (kFp8) out *= 256.0f * scales[r];
        call.y[m * call.ldy + r] = call.bias != nullptr ? out + call.bias[r] : out;
      }
    }
  }

  static constexpr LinearKernel kernel(std::string_view name) {
    return {name,           Isa::kRef,     kFormat, kRound ? ActivationMode::kA16 : ActivationMode::kF32,
            /*row_tile=*/1,
            /*max_rows=*/8, &packed_bytes, &pack,   &activation_bytes,
            &quantize,      &run};
  }
};

}  // namespace

std::span<const LinearKernel> linear_bf16() {
  static constexpr LinearKernel kKernels[] = {
      Linear<float, false>::kernel("linear_f32_f32_ref"),     Linear<float, true>::kernel("linear_f32_a16_ref"),
      Linear<uint16_t, false>::kernel("linear_bf16_f32_ref"), Linear<uint16_t, true>::kernel("linear_bf16_a16_ref"),
      Linear<uint8_t, false>::kernel("linear_fp8_f32_ref"),   Linear<uint8_t, true>::kernel("linear_fp8_a16_ref"),
  };
  return kKernels;
}

}  // namespace halfbyte::ref
