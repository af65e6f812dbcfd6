// The most that a pass on a CUDA device takes. Plain numbers, for those who check what people ask for, too.
#pragma once

#include <cstdint>

namespace halfbyte {

inline constexpr int kMaxPassRows = 64;           // of decode: up to four groups of cuda::kMaxRows
inline constexpr int64_t kMostPromptRows = 4096;  // of a prompt's pass: work space grows with it

}  // namespace halfbyte
