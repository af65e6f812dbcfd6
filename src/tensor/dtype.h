// Element types of tensors in memory and in files.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/checked.h"

namespace halfbyte {

// The type of a stored tensor. The GGUF block types pack `block` consecutive elements of a row into `block_bytes` bytes.
enum class DType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kF64,
  kF8E4M3,
  kF8E5M2,
  kU8,
  kI8,
  kI16,
  kI32,
  kI64,
  kBool,
  // GGUF's block types (io/gguf_blocks.h)
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIQ4NL,
  kIQ4XS,
  kGgufMXFP4,  // not the layout of MXFP4 tensors in Hugging Face folders, which are kU8
  kGgufNVFP4,  // likewise
};

struct DTypeInfo {
  std::string_view name;  // as the file formats spell it: "F32", "BF16", "F8_E4M3", "Q4_0"
  uint32_t block;         // elements a block; 1 for plain types
  uint32_t block_bytes;
};

const DTypeInfo& dtype_info(DType type);

// Bytes of `elements` elements laid out in rows of whole blocks; nothing on overflow or a broken block.
inline std::optional<uint64_t> dtype_bytes(DType type, uint64_t elements) {
  const DTypeInfo& info = dtype_info(type);
  if (elements % info.block != 0) return std::nullopt;
  return checked_mul(elements / info.block, info.block_bytes);
}

}  // namespace halfbyte
