#include "model/kv_cache.h"

#include <sys/mman.h>

#include <utility>

#include "base/checked.h"

namespace halfbyte {
namespace {

KvFormat format_of(KvKind kind) {
  switch (kind) {
    case KvKind::kF32: return KvFormat::kF32;
    case KvKind::kBF16: return KvFormat::kBF16;
    case KvKind::kFP8: return KvFormat::kFP8;
    case KvKind::kNVFP4: return KvFormat::kNVFP4;
    case KvKind::kE1M2: return KvFormat::kE1M2;
  }
  return KvFormat::kBF16;
}

}  // namespace

KvShape kv_shape(const ModelConfig& config, KvKind kind, int64_t page_tokens) {
  return {config.layers, config.kv_heads, {format_of(kind), page_tokens, config.head_dim}};
}

Result<KvCache> KvCache::create(const KvShape& shape, int64_t pages) {
  const auto bytes = checked_mul(static_cast<uint64_t>(pages), shape.page_bytes());
  const auto failure = [&] {
    return resource_exhausted("cannot reserve address space for a KV cache of " + std::to_string(pages) + " pages of " +
                              std::to_string(shape.page_bytes()) + " bytes; ask for a shorter context");
  };
  if (!bytes) return failure();
  // A line of slack: kernels may read a whole vector at the end.
  const size_t mapped = static_cast<size_t>(*bytes) + 64;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) return failure();
  KvCache cache;
  cache.shape_ = shape;
  cache.pages_ = pages;
  cache.base_ = static_cast<std::byte*>(base);
  cache.mapped_bytes_ = mapped;
  return cache;
}

KvCache::KvCache(KvCache&& other) noexcept {
  *this = std::move(other);
}

KvCache& KvCache::operator=(KvCache&& other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(pages_, other.pages_);
  std::swap(base_, other.base_);
  std::swap(mapped_bytes_, other.mapped_bytes_);
  return *this;
}

KvCache::~KvCache() {
  if (base_ != nullptr) munmap(base_, mapped_bytes_);
}

KvCache::Parts KvCache::parts(int32_t id, int64_t layer, int64_t kv_head) {
  const size_t part = kv_part_bytes(shape_.layout);
  std::byte* keys =
      page(id).data() + static_cast<size_t>(layer) * shape_.layer_bytes() + static_cast<size_t>(kv_head) * part;
  return {keys, keys + static_cast<size_t>(shape_.kv_heads) * part};
}

}  // namespace halfbyte
