// The reference of y = x W^T for FP4 weights, as docs/numerics.md 3 words it: one function for both weight formats and
// all activation modes. Written to be read; speed is the business of cpu/.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "formats/bf16.h"
#include "formats/fp8.h"
#include "formats/mxfp4.h"
#include "formats/nvfp4.h"
#include "kernels/api.h"
#include "kernels/ref/plain_rows.h"

namespace halfbyte::ref {

struct Nvfp4Weights {
  static constexpr WeightFormat kFormat = WeightFormat::kNVFP4;
  static constexpr int kBlock = NVFP4::kBlock;
  static float scale(uint8_t code) { return E4M3::decode(code); }
};

struct Mxfp4Weights {
  static constexpr WeightFormat kFormat = WeightFormat::kMXFP4;
  static constexpr int kBlock = MXFP4::kBlock;
  static float scale(uint8_t code) { return E8M0::decode(code); }
};

// One activation row as the kernels below read it: x^[k] = values[k] * scales[block] * alpha. `Value` is float, or an
// integer that stands for Value * kUnit.
template <class Value>
struct ActivationRow {
  float* alpha;   // [1]
  float* scales;  // [blocks]
  Value* values;  // [blocks * block], padded with 0

  static size_t bytes(int64_t blocks, int block) {
    return kKernelAlign + align_up(blocks * sizeof(float)) + align_up(blocks * block * sizeof(Value));
  }
  static ActivationRow at(std::byte* row, int64_t blocks) {
    std::byte* scales = row + kKernelAlign;
    std::byte* values = scales + align_up(blocks * sizeof(float));
    return {reinterpret_cast<float*>(row), reinterpret_cast<float*>(scales), reinterpret_cast<Value*>(values)};
  }
};

// The modes. Each has the type of its values, their unit, and the quantiser of one row.

struct ModeF32 {
  using Value = float;
  static constexpr ActivationMode kMode = ActivationMode::kF32;
  template <class W>
  static void quantize(const float* x, int64_t k, float, ActivationRow<Value> row) {
    for (int64_t i = 0; i < k; ++i) row.values[i] = x[i];
    *row.alpha = 1.0f;
    for (int64_t b = 0; b * W::kBlock < k; ++b) row.scales[b] = 1.0f;
  }
};

struct ModeA16 {
  using Value = float;
  static constexpr ActivationMode kMode = ActivationMode::kA16;
  template <class W>
  static void quantize(const float* x, int64_t k, float alpha, ActivationRow<Value> row) {
    ModeF32::quantize<W>(x, k, alpha, row);
    for (int64_t i = 0; i < k; ++i) row.values[i] = BF16::round(x[i]);
  }
};

// Section 3.2: a block of BF16 values as integers with one power of two.
struct ModeA16I16 {
  using Value = int32_t;
  static constexpr ActivationMode kMode = ActivationMode::kA16;
  static constexpr float kUnit = 1.0f;
  template <class W>
  static void quantize(const float* x, int64_t k, float, ActivationRow<Value> row) {
    *row.alpha = 1.0f;
    for (int64_t b = 0; b * W::kBlock < k; ++b) {
      const int64_t begin = b * W::kBlock, end = std::min<int64_t>(begin + W::kBlock, k);
      float amax = 0.0f;
      for (int64_t i = begin; i < end; ++i) amax = wider_amax(amax, BF16::round(x[i]));
      const bool finite = is_finite(amax);
      const int e = amax < 0x1p-64f ? -64 : floor_log2(amax);
      row.scales[b] = finite ? power_of_two(e - 14) : bits_float(0x7FC00000u);
      for (int64_t i = begin; i < end; ++i) {
        const float scaled = finite ? BF16::round(x[i]) * power_of_two(14 - e) : 0.0f;
        row.values[i] = std::clamp(static_cast<int>(round_even(scaled)), -32639, 32639);
      }
    }
  }
};

// E4M3 codes as integers times 2^-9.
struct ModeA8 {
  using Value = int32_t;
  static constexpr ActivationMode kMode = ActivationMode::kA8;
  static constexpr float kUnit = E4M3::kMinSubnormal;
  static int32_t value(uint8_t code) { return static_cast<int32_t>(E4M3::decode(code) * 512.0f); }

  template <class W>
  static void quantize(const float* x, int64_t k, float alpha, ActivationRow<Value> row) {
    // The codes go where the values will be, at the end, so that widening from the front does not overtake them.
    const int64_t blocks = (k + W::kBlock - 1) / W::kBlock;
    auto* codes = reinterpret_cast<uint8_t*>(row.values) + blocks * W::kBlock * sizeof(Value) - k;
    if constexpr (W::kFormat == WeightFormat::kNVFP4) {
      *row.alpha = FP8Row::quantize_row(x, k, alpha, codes);
      for (int64_t b = 0; b < blocks; ++b) row.scales[b] = 1.0f;
    } else {
      *row.alpha = 1.0f;
      for (int64_t b = 0; b < blocks; ++b) {
        const int64_t begin = b * W::kBlock;
        uint8_t scale;
        MXFP8::quantize_row(x + begin, std::min<int64_t>(W::kBlock, k - begin), codes + begin, &scale);
        row.scales[b] = E8M0::decode(scale);
      }
    }
    for (int64_t i = 0; i < k; ++i) row.values[i] = value(codes[i]);
    for (int64_t i = k; i < blocks * W::kBlock; ++i) row.values[i] = 0;
  }
};

// E2M1 codes as doubled integers.
struct ModeA4 {
  using Value = int32_t;
  static constexpr ActivationMode kMode = ActivationMode::kA4;
  static constexpr float kUnit = 0.5f;

  template <class W>
  static void quantize(const float* x, int64_t k, float alpha, ActivationRow<Value> row) {
    constexpr bool kNvfp4 = W::kFormat == WeightFormat::kNVFP4;
    *row.alpha = !kNvfp4 ? 1.0f : alpha > 0.0f ? alpha : NVFP4::tensor_scale(abs_max(x, k));
    for (int64_t b = 0; b * W::kBlock < k; ++b) {
      const float* block = x + b * W::kBlock;
      const int n = static_cast<int>(std::min<int64_t>(W::kBlock, k - b * W::kBlock));
      uint8_t scale, codes[W::kBlock / 2];
      if constexpr (kNvfp4) {
        NVFP4::quantize_activation_row(block, n, *row.alpha, codes, &scale);
      } else {
        MXFP4::quantize_row(block, n, Mxfp4Rule::kRound74, codes, &scale);
      }
      row.scales[b] = W::scale(scale);
      for (int i = 0; i < W::kBlock; ++i) row.values[b * W::kBlock + i] = E2M1::decode_doubled(E2M1::unpack(codes, i));
    }
  }
};

// Step 1: the dot of one block, exact (integers; FP64 sum of exact products for float values), rounded once to FP32.
template <class Mode, class W>
float block_dot(const uint8_t* codes, const typename Mode::Value* x) {
  if constexpr (std::is_same_v<typename Mode::Value, float>) {
    double sum = 0.0;
    for (int i = 0; i < W::kBlock; ++i)
      sum += static_cast<double>(E2M1::decode(E2M1::unpack(codes, i))) * static_cast<double>(x[i]);
    return static_cast<float>(sum);
  } else {
    int64_t sum = 0;
    for (int i = 0; i < W::kBlock; ++i) sum += E2M1::decode_doubled(E2M1::unpack(codes, i)) * int64_t{x[i]};
    return static_cast<float>(sum) * (0.5f * Mode::kUnit);  // a power of two: exact
  }
}

template <class W>
struct Packed {
  static int64_t blocks(int64_t k) { return blocks_per_row(W::kFormat, k); }
  static size_t code_bytes(int64_t n, int64_t k) { return normal_form_scales_offset(W::kFormat, n, k); }
  static size_t bytes(int64_t n, int64_t k) { return code_bytes(n, k) + align_up(n * blocks(k)); }

  // Codes [n, blocks * block / 2], then scales [n, blocks], as QuantLinear has them.
  static void pack(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed) {
    const int64_t row_codes = code_bytes_per_row(W::kFormat, w.k), row_scales = blocks(w.k);
    std::memcpy(packed + n_begin * row_codes, w.codes.bytes().data() + n_begin * row_codes,
                static_cast<size_t>((n_end - n_begin) * row_codes));
    std::memcpy(packed + code_bytes(w.n, w.k) + n_begin * row_scales,
                w.block_scales.bytes().data() + n_begin * row_scales,
                static_cast<size_t>((n_end - n_begin) * row_scales));
  }
};

template <class Mode, class W>
struct LinearFp4 {
  using Row = ActivationRow<typename Mode::Value>;

  static size_t activation_bytes(int64_t k) { return Row::bytes(Packed<W>::blocks(k), W::kBlock); }

  static void quantize(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out) {
    const size_t row_bytes = activation_bytes(k);
    for (int64_t m = 0; m < rows; ++m) {
      std::byte* row = out + m * row_bytes;
      std::memset(row, 0, row_bytes);
      Mode::template quantize<W>(x + m * k, k, alpha, Row::at(row, Packed<W>::blocks(k)));
    }
  }

  // Steps 2 and 3 for one output.
  static float sum_of_blocks(const uint8_t* codes, const uint8_t* scales, const Row& x, int64_t blocks) {
    float acc = 0.0f;
    for (int64_t first = 0; first < blocks; first += 8) {
      float t[8] = {};
      for (int64_t b = first; b < std::min<int64_t>(first + 8, blocks); ++b) {
        const float d = block_dot<Mode, W>(codes + b * W::kBlock / 2, x.values + b * W::kBlock);
        t[b - first] = d * (W::scale(scales[b]) * x.scales[b]);
      }
      acc += ((t[0] + t[1]) + (t[2] + t[3])) + ((t[4] + t[5]) + (t[6] + t[7]));
    }
    return acc;
  }

  static void run(const LinearCall& call) {
    const int64_t blocks = Packed<W>::blocks(call.k);
    const auto* codes = reinterpret_cast<const uint8_t*>(call.packed);
    const auto* scales = codes + Packed<W>::code_bytes(call.n, call.k);
    for (int64_t m = 0; m < call.rows; ++m) {
      const Row x = Row::at(const_cast<std::byte*>(call.activations) + m * activation_bytes(call.k), blocks);
      for (int64_t r = call.n_begin; r < call.n_end; ++r) {
        const float acc = sum_of_blocks(codes + r * blocks * (W::kBlock / 2), scales + r * blocks, x, blocks);
        const float out = acc * (call.tensor_scale * *x.alpha);
        call.y[m * call.ldy + r] = call.bias != nullptr ? out + call.bias[r] : out;
      }
    }
  }

  static constexpr LinearKernel kernel(std::string_view name) {
    return {name,           Isa::kRef,         W::kFormat,       Mode::kMode,
            /*row_tile=*/1,
            /*max_rows=*/8, &Packed<W>::bytes, &Packed<W>::pack, &activation_bytes, &quantize, &run};
  }
};

}  // namespace halfbyte::ref
