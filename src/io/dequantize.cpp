#include "io/dequantize.h"

#include <cassert>
#include <cstring>

#include "formats/e4m3.h"
#include "io/gguf_blocks.h"

namespace halfbyte {
namespace {

const BlockDecoders& fastest() {
  static const BlockDecoders& decoders = *block_decoders_here().back();
  return decoders;
}

DecodeBlocksFn block_decoder(DType type) {
  return fastest().decoder(type);
}

}  // namespace

bool can_dequantize(DType type) {
  switch (type) {
    case DType::kF32:
    case DType::kF8E4M3: return true;
    default: return block_decoder(type) != nullptr;
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
    case DType::kF8E4M3:
      for (size_t i = 0; i < n; ++i) out[i] = E4M3::decode(static_cast<uint8_t>(p[i]));
      break;
    default: block_decoder(type)(p, n / dtype_info(type).block, out.data()); break;
  }
}

std::optional<float> largest_of_row(DType type, std::span<const std::byte> in) {
  const LargestOfBlocksFn largest = fastest().largest(type);
  if (largest == nullptr) return std::nullopt;
  return largest(in.data(), in.size() / dtype_info(type).block_bytes);
}

}  // namespace halfbyte
