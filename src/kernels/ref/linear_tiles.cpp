// The reference of the tile form (docs/numerics.md 3.5): BF16 operands with their block scales applied, sums in the
// order of AMX's TDPBF16PS (Intel SDM volume 2), which flushes subnormals.
#include <cmath>
#include <vector>

#include "kernels/kernel_lists.h"
#include "kernels/ref/linear_fp4.h"
#include "kernels/ref/plain_rows.h"

namespace halfbyte::ref {
namespace {

constexpr int64_t kStep = 32;  // k of one tile instruction

constexpr int64_t padded(int64_t k) {
  return (k + kStep - 1) / kStep * kStep;
}

float flush(float v) {
  return magnitude(v) < 0x1p-126f ? std::copysign(0.0f, v) : v;
}

// kInterleaved: the two sums of a step are over its first and its last 16 k; else over its even and its odd k.
template <bool kInterleaved>
float tile_dot(const float* x, const float* w, int64_t padded_k) {
  float acc = 0.0f;
  for (int64_t first = 0; first < padded_k; first += kStep) {
    float sums[2] = {0.0f, 0.0f};
    for (int i = 0; i < 16; ++i) {
      for (int half = 0; half < 2; ++half) {
        const int64_t k = first + (kInterleaved ? 16 * half + i : 2 * i + half);
        sums[half] = flush(std::fma(flush(x[k]), flush(w[k]), sums[half]));
      }
    }
    acc = flush(acc + flush(sums[0] + sums[1]));
  }
  return acc;
}

// BF16 weights with BF16 activations.
struct Bf16Tiles {
  static size_t activation_bytes(int64_t k) { return align_up(static_cast<size_t>(padded(k)) * sizeof(float)); }
  static void quantize(const float* x, int64_t rows, int64_t k, float, std::byte* out) {
    for (int64_t m = 0; m < rows; ++m) {
      auto* row = reinterpret_cast<float*>(out + m * activation_bytes(k));
      for (int64_t i = 0; i < padded(k); ++i) row[i] = i < k ? BF16::round(x[m * k + i]) : 0.0f;
    }
  }

  static void run(const LinearCall& call) {
    const auto* codes = reinterpret_cast<const uint16_t*>(call.packed);
    std::vector<float> w(static_cast<size_t>(padded(call.k)));
    for (int64_t r = call.n_begin; r < call.n_end; ++r) {
      for (int64_t i = 0; i < call.k; ++i) w[i] = BF16::decode(codes[r * call.k + i]);
      for (int64_t m = 0; m < call.rows; ++m) {
        const auto* x = reinterpret_cast<const float*>(call.activations + m * activation_bytes(call.k));
        const float out = tile_dot</*kInterleaved=*/false>(x, w.data(), padded(call.k));
        call.y[m * call.ldy + r] = call.bias != nullptr ? out + call.bias[r] : out;
      }
    }
  }

  static constexpr LinearKernel kernel(std::string_view name) {
    return {name,
            Isa::kRef,
            WeightFormat::kBF16,
            ActivationMode::kA16,
            /*row_tile=*/1,
            /*max_rows=*/8,
            &PlainRows<uint16_t>::packed_bytes,
            &PlainRows<uint16_t>::pack,
            &activation_bytes,
            &quantize,
            &run,
            /*prompt_only=*/true};
  }
};

// FP4 weights. Activations are those of `Mode` (linear_fp4.h); here their block scales are multiplied in.
template <class Mode, class W>
struct Fp4TilesRef {
  using Row = ActivationRow<typename Mode::Value>;

  static size_t activation_bytes(int64_t k) { return LinearFp4<Mode, W>::activation_bytes(k); }

  static void quantize(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
    LinearFp4<Mode, W>::quantize(x, rows, k, alpha, out);
    if constexpr (std::is_same_v<typename Mode::Value, float>) {
      for (int64_t m = 0; m < rows; ++m) {
        const Row row = Row::at(out + m * activation_bytes(k), Packed<W>::blocks(k));
        if (is_finite(abs_max(row.values, k))) continue;
        *row.alpha = bits_float(0x7FC00000u);
        std::fill_n(row.values, k, 0.0f);
      }
    }
  }

  static float unit() {
    if constexpr (std::is_same_v<typename Mode::Value, float>)
      return 1.0f;
    else
      return Mode::kUnit;
  }

  static void run(const LinearCall& call) {
    const int64_t blocks = Packed<W>::blocks(call.k);
    const auto* codes = reinterpret_cast<const uint8_t*>(call.packed);
    const auto* scales = codes + Packed<W>::code_bytes(call.n, call.k);
    std::vector<float> x(static_cast<size_t>(padded(call.k))), w(x.size());
    for (int64_t m = 0; m < call.rows; ++m) {
      const Row row = Row::at(const_cast<std::byte*>(call.activations) + m * activation_bytes(call.k), blocks);
      for (int64_t i = 0; i < blocks * W::kBlock; ++i)
        x[i] = static_cast<float>(row.values[i]) * unit() * row.scales[i / W::kBlock];
      for (int64_t r = call.n_begin; r < call.n_end; ++r) {
        for (int64_t i = 0; i < blocks * W::kBlock; ++i)
          w[i] = E2M1::decode(E2M1::unpack(codes + r * blocks * (W::kBlock / 2), i)) *
                 W::scale(scales[r * blocks + i / W::kBlock]);
        const float out =
            tile_dot</*kInterleaved=*/true>(x.data(), w.data(), padded(call.k)) * (call.tensor_scale * *row.alpha);
        call.y[m * call.ldy + r] = call.bias != nullptr ? out + call.bias[r] : out;
      }
    }
  }

  static constexpr LinearKernel kernel(std::string_view name) {
    return {name,
            Isa::kRef,
            W::kFormat,
            Mode::kMode,
            /*row_tile=*/1,
            /*max_rows=*/8,
            &Packed<W>::bytes,
            &Packed<W>::pack,
            &activation_bytes,
            &quantize,
            &run,
            /*prompt_only=*/true};
  }
};

}  // namespace

std::span<const LinearKernel> linear_tiles() {
  static constexpr LinearKernel kKernels[] = {
      Fp4TilesRef<ModeA16, Nvfp4Weights>::kernel("linear_nvfp4_a16t_ref"),
      Fp4TilesRef<ModeA8, Nvfp4Weights>::kernel("linear_nvfp4_a8t_ref"),
      Fp4TilesRef<ModeA4, Nvfp4Weights>::kernel("linear_nvfp4_a4t_ref"),
      Fp4TilesRef<ModeA16, Mxfp4Weights>::kernel("linear_mxfp4_a16t_ref"),
      Fp4TilesRef<ModeA8, Mxfp4Weights>::kernel("linear_mxfp4_a8t_ref"),
      Fp4TilesRef<ModeA4, Mxfp4Weights>::kernel("linear_mxfp4_a4t_ref"),
      Bf16Tiles::kernel("linear_bf16_a16t_ref"),
  };
  return kKernels;
}

}  // namespace halfbyte::ref
