// The one normal form of a linear layer's weight, whatever file it came from. io makes it, quantize writes it, kernels
// pack it into their own layouts at load.
//
// W is [n = out features, k = in features]. value(n, k) = code * block scale * tensor_scale (a multiplier).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tensor/buffer.h"

namespace halfbyte {

enum class WeightFormat : uint8_t {
  kF32,    // codes: float [n, k]
  kBF16,   // codes: uint16 [n, k]
  kFP8,    // codes: E4M3 [n, k]; block_scales: FP32 [n], a row is one block
  kNVFP4,  // codes: [n, ceil(k/16)*8] bytes, even k in the low nibble, padded with 0; block_scales: E4M3 [n, ceil(k/16)]
  kMXFP4,  // codes: [n, ceil(k/32)*16] bytes, likewise; block_scales: E8M0 [n, ceil(k/32)]
};

// Elements of one scale block along k: 16 for NVFP4, 32 for MXFP4, 1 otherwise (FP8 has one scale a row).
constexpr int64_t block_size(WeightFormat f) {
  return f == WeightFormat::kNVFP4 ? 16 : f == WeightFormat::kMXFP4 ? 32 : 1;
}
// Scale blocks a row.
constexpr int64_t blocks_per_row(WeightFormat f, int64_t k) {
  return (k + block_size(f) - 1) / block_size(f);
}
// Bytes of codes a row.
constexpr int64_t code_bytes_per_row(WeightFormat f, int64_t k) {
  switch (f) {
    case WeightFormat::kF32: return k * 4;
    case WeightFormat::kBF16: return k * 2;
    case WeightFormat::kFP8: return k;
    case WeightFormat::kNVFP4:
    case WeightFormat::kMXFP4: return blocks_per_row(f, k) * block_size(f) / 2;
  }
  return 0;
}
constexpr int64_t scale_bytes_per_row(WeightFormat f, int64_t k) {
  if (f == WeightFormat::kFP8) return static_cast<int64_t>(sizeof(float));
  return block_size(f) == 1 ? 0 : blocks_per_row(f, k);
}

struct QuantLinear {
  std::string name;  // the module's on-disk name, e.g. "model.layers.0.self_attn.q_proj"
  WeightFormat format = WeightFormat::kBF16;
  int64_t n = 0;
  int64_t k = 0;
  Buffer codes;                      // n * code_bytes_per_row(format, k) bytes
  Buffer block_scales;               // n * scale_bytes_per_row(format, k) bytes
  float tensor_scale = 1.0f;         // alpha_w; 1 for all but NVFP4
  std::optional<float> input_scale;  // alpha_x, the checkpoint's; none: weight-only checkpoint
  std::vector<float> pre_scale;      // [k] or empty: x is multiplied by it before quantising (AWQ)
  std::vector<float> bias;           // [n] or empty
};

}  // namespace halfbyte
