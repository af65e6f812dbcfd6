// Where attention finds keys and values, and how it uses its scratch memory: shared by every implementation.
#pragma once

#include "kernels/api.h"

namespace halfbyte {

// Positions are cut at absolute multiples of this many (docs/numerics.md 5).
inline constexpr int64_t kAttentionCut = 256;

// Scratch of one call, in floats: scores [group, kAttentionCut], the cut's output [group, head_dim], and M, L of what
// is already merged [group] each.
inline constexpr int64_t attention_scratch(int64_t group, int64_t head_dim) {
  return group * (kAttentionCut + head_dim + 2);
}

}  // namespace halfbyte
