// The paged cache of keys and values of all layers.
//
// A page holds page_tokens positions of one sequence, for every layer: [layers][keys, values][kv_heads] parts (KvLayout in
// kernels/api.h). So a page is one run of bytes to save and restore, and within a layer a head's keys are contiguous.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "halfbyte/plan.h"
#include "kernels/api.h"
#include "model/config.h"

namespace halfbyte {

struct KvShape {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  KvLayout layout;

  // Keys and values of all heads of one layer in one page.
  size_t layer_bytes() const { return 2 * static_cast<size_t>(kv_heads) * kv_part_bytes(layout); }
  size_t page_bytes() const { return static_cast<size_t>(layers) * layer_bytes(); }
};

// The shape of a model's cache in a plan.
KvShape kv_shape(const ModelConfig& config, KvKind kind, int64_t page_tokens);

// Thread-compatible; different positions may be written at the same time.
class KvCache {
 public:
  // Reserves address space for `pages` pages; memory is taken when a page is first written. kResourceExhausted when the
  // system refuses.
  static Result<KvCache> create(const KvShape& shape, int64_t pages);
  KvCache(KvCache&& other) noexcept;
  KvCache& operator=(KvCache&& other) noexcept;
  ~KvCache();

  const KvShape& shape() const { return shape_; }
  int64_t pages() const { return pages_; }

  std::span<std::byte> page(int32_t id) {
    return {base_ + static_cast<size_t>(id) * shape_.page_bytes(), shape_.page_bytes()};
  }
  const std::byte* layer_page(int32_t id, int64_t layer) const {
    return base_ + static_cast<size_t>(id) * shape_.page_bytes() + static_cast<size_t>(layer) * shape_.layer_bytes();
  }

  // Where one head's keys and values of a layer lie in a page: what KvStoreFn writes to.
  struct Parts {
    std::byte* keys;
    std::byte* values;
  };
  Parts parts(int32_t id, int64_t layer, int64_t kv_head);

 private:
  KvCache() = default;
  KvShape shape_;
  int64_t pages_ = 0;
  std::byte* base_ = nullptr;  // [pages][page_bytes]
  size_t mapped_bytes_ = 0;
};

}  // namespace halfbyte
