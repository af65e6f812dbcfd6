#include <array>

#include "io/gguf_blocks_tables.h"

namespace halfbyte {

std::span<const BlockDecoders* const> block_decoders_here() {
#if defined(__x86_64__)
  static constexpr std::array<const BlockDecoders*, 2> kForms{&kBlockDecodersBaseline, &kBlockDecodersAvx2};
  static const size_t count = __builtin_cpu_supports("avx2") ? 2 : 1;
#else
  static constexpr std::array<const BlockDecoders*, 1> kForms{&kBlockDecodersBaseline};
  static constexpr size_t count = 1;
#endif
  return {kForms.data(), count};
}

}  // namespace halfbyte
