#include "io/dequantize.h"

#include <cassert>
#include <cstring>

#include "formats/bf16.h"
#include "formats/e4m3.h"
#include "formats/f16.h"

namespace halfbyte {
namespace {

uint16_t load16(const std::byte* p) {
  return static_cast<uint16_t>(static_cast<uint16_t>(p[0]) | static_cast<uint16_t>(p[1]) << 8);
}

void q4_0_block(const std::byte* in, float* out) {
  const float d = F16::decode(load16(in));
  for (int i = 0; i < 16; ++i) {
    const int q = static_cast<int>(in[2 + i]);
    out[i] = d * static_cast<float>((q & 15) - 8);
    out[i + 16] = d * static_cast<float>((q >> 4) - 8);
  }
}

void q4_1_block(const std::byte* in, float* out) {
  const float d = F16::decode(load16(in));
  const float m = F16::decode(load16(in + 2));
  for (int i = 0; i < 16; ++i) {
    const int q = static_cast<int>(in[4 + i]);
    out[i] = d * static_cast<float>(q & 15) + m;
    out[i + 16] = d * static_cast<float>(q >> 4) + m;
  }
}

void q8_0_block(const std::byte* in, float* out) {
  const float d = F16::decode(load16(in));
  for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(static_cast<int8_t>(in[2 + i]));
}

}  // namespace

bool can_dequantize(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8E4M3:
    case DType::kQ4_0:
    case DType::kQ4_1:
    case DType::kQ8_0: return true;
    default: return false;
  }
}

void dequantize_row(DType type, std::span<const std::byte> in, std::span<float> out) {
  assert(can_dequantize(type) && dtype_bytes(type, out.size()) == in.size());
  const std::byte* p = in.data();
  const size_t n = out.size();
  switch (type) {
    case DType::kF32:
      if (n != 0) std::memcpy(out.data(), p, n * 4);
      break;
    case DType::kF16:
      for (size_t i = 0; i < n; ++i) out[i] = F16::decode(load16(p + 2 * i));
      break;
    case DType::kBF16:
      for (size_t i = 0; i < n; ++i) out[i] = BF16::decode(load16(p + 2 * i));
      break;
    case DType::kF8E4M3:
      for (size_t i = 0; i < n; ++i) out[i] = E4M3::decode(static_cast<uint8_t>(p[i]));
      break;
    case DType::kQ4_0:
      for (size_t b = 0; b < n / 32; ++b) q4_0_block(p + 18 * b, out.data() + 32 * b);
      break;
    case DType::kQ4_1:
      for (size_t b = 0; b < n / 32; ++b) q4_1_block(p + 20 * b, out.data() + 32 * b);
      break;
    case DType::kQ8_0:
      for (size_t b = 0; b < n / 32; ++b) q8_0_block(p + 34 * b, out.data() + 32 * b);
      break;
    default: break;
  }
}

}  // namespace halfbyte
