// Stored rows to FP32, exactly as each format defines the values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tensor/dtype.h"

namespace halfbyte {

// Whether dequantize_row reads this type.
bool can_dequantize(DType type);

// in: dtype_bytes(type, out.size()) bytes, unaligned; out.size() is a multiple of the type's block.
// The block layouts of GGUF are in io/gguf_blocks.h.
void dequantize_row(DType type, std::span<const std::byte> in, std::span<float> out);

// The largest magnitude among those values, made without them; not finite where one of them is not. Nothing for types that
// have no shorter way than dequantize_row.
std::optional<float> largest_of_row(DType type, std::span<const std::byte> in);

}  // namespace halfbyte
