// Where attention finds keys and values, and how it uses its scratch memory: shared by every implementation. Plain
// numbers only; for files of one instruction set everything here is inlined for certain.
#pragma once

#include "kernels/api.h"

namespace halfbyte {

#define HB_LAYOUT [[gnu::always_inline]] constexpr

// Positions that are converted at once, at most.
inline constexpr int64_t kAttentionTile = 64;
inline constexpr int64_t kKvBlock = 16;  // channels that share a scale in the 4-bit formats

HB_LAYOUT int64_t kv_unit(KvFormat format) {
  return format == KvFormat::kF32 ? 1 : 2;
}
HB_LAYOUT bool kv_has_blocks(KvFormat format) {
  return format == KvFormat::kNVFP4 || format == KvFormat::kE1M2;
}
HB_LAYOUT int64_t kv_blocks(int64_t head_dim) {
  return (head_dim + kKvBlock - 1) / kKvBlock;
}
// Bytes of `elements` elements, an even number of them.
HB_LAYOUT int64_t kv_element_bytes(KvFormat format, int64_t elements) {
  switch (format) {
    case KvFormat::kF32: return elements * 4;
    case KvFormat::kBF16: return elements * 2;
    case KvFormat::kFP8: return elements;
    case KvFormat::kNVFP4:
    case KvFormat::kE1M2: return elements / 2;
  }
  return 0;
}
// Where the block scales of a part begin; its size without them.
HB_LAYOUT int64_t kv_data_bytes(const KvLayout& layout) {
  return kv_element_bytes(layout.format, layout.page_tokens * layout.head_dim);
}
HB_LAYOUT int64_t kv_bytes_of_part(const KvLayout& layout) {
  return kv_data_bytes(layout) + (kv_has_blocks(layout.format) ? layout.page_tokens * kv_blocks(layout.head_dim) : 0);
}

HB_LAYOUT int64_t attention_partial(int64_t group, int64_t head_dim) {
  return group * (head_dim + 2);
}
HB_LAYOUT int64_t attention_max_rows(int64_t group) {
  return group < kAttentionQueryRows ? kAttentionQueryRows / group : 1;
}
// Caches over which prompt rows may run in the tile order.
HB_LAYOUT bool attention_has_tiles(const KvLayout& layout) {
  return layout.format == KvFormat::kBF16 && layout.head_dim % 32 == 0;
}

// Scratch of one call, in floats. Rows of vectors are padded to kKvBlock channels and begin at multiples of 64 bytes.
struct AttentionScratch {
  int64_t rows;                                               // query rows
  int64_t stride;                                             // of q, out and the values' tile
  int64_t q, scores, cut, merged, stats, tile, strip, total;  // offsets, and the size

  HB_LAYOUT AttentionScratch(int64_t group, int64_t head_dim)
      : rows(attention_max_rows(group) * group),
        stride(kv_blocks(head_dim) * kKvBlock),
        q(16),  // room for aligning the start
        scores(q + rows * stride),
        cut(scores + rows * kAttentionCut),
        merged(cut + rows * stride),
        stats(merged + rows * stride),
        tile(stats + (4 * rows + 15) / 16 * 16),
        strip(tile + kAttentionTile * stride),
        total(strip + 16 * stride + 16 * kv_blocks(head_dim)) {}
};

#undef HB_LAYOUT

}  // namespace halfbyte
