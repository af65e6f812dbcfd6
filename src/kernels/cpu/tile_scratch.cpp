#include "kernels/cpu/tile_scratch.h"

#include <algorithm>

#include "kernels/cpu/tile_rows.h"
#include "tensor/buffer.h"

namespace halfbyte::cpu {
namespace {

std::byte* at_least(Buffer& buffer, size_t bytes) {
  if (buffer.size() < bytes) buffer = Buffer::allocate(bytes);
  return buffer.mutable_bytes().data();
}

}  // namespace

std::byte* tile_scratch(size_t bytes) {
  // Buffers of this size get large pages; what is not touched takes no memory.
  constexpr size_t kOnLargePages = size_t{4} << 20;
  thread_local Buffer buffer;
  return at_least(buffer, std::max(bytes, kOnLargePages));
}

std::byte* row_scratch(size_t bytes) {
  thread_local Buffer buffer;
  return at_least(buffer, bytes);
}

size_t tile_activation_bytes(int64_t k) {
  return static_cast<size_t>(tile_row_bytes(k));
}

}  // namespace halfbyte::cpu
