#include "model/kv_cache.h"

#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "base/checked.h"

namespace halfbyte {
namespace {

void store_row(const VectorKernels& kernels, KvKind kind, const float* values, int64_t count, std::byte* out) {
  if (kind == KvKind::kF32) {
    std::memcpy(out, values, static_cast<size_t>(count) * sizeof(float));
  } else {
    kernels.to_bf16(values, count, reinterpret_cast<uint16_t*>(out));
  }
}

}  // namespace

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

void KvCache::store(const VectorKernels& kernels, int32_t page_id, int64_t layer, int64_t kv_head, int64_t slot,
                    const float* key, const float* value) {
  std::byte* at = page(page_id).data() + static_cast<size_t>(layer) * shape_.layer_bytes() +
                  static_cast<size_t>((kv_head * shape_.page_tokens + slot) * shape_.head_dim) * shape_.value_bytes();
  store_row(kernels, shape_.kind, key, shape_.head_dim, at);
  store_row(kernels, shape_.kind, value, shape_.head_dim, at + shape_.half_layer_bytes());
}

}  // namespace halfbyte
