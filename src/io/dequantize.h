// Stored rows to FP32, exactly as each format defines the values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace halfbyte {

// Whether dequantize_row reads this type.
bool can_dequantize(DType type);

// in: dtype_bytes(type, out.size()) bytes, unaligned; out.size() is a multiple of the type's block.
// Block layouts (32 consecutive elements): Q4_0 = f16 d, 16 bytes (element i in the low nibble of byte i, i + 16 in the
// high one), value d * (q - 8); Q4_1 = f16 d, f16 m, 16 bytes, value d * q + m in FP32; Q8_0 = f16 d, 32 int8, value d
// * q.
void dequantize_row(DType type, std::span<const std::byte> in, std::span<float> out);

}  // namespace halfbyte
