// Bytes that are either owned (64-byte aligned) or borrowed from a mapped file that they keep alive.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <new>
#include <span>

namespace halfbyte {

// Movable and cheap to copy (shared). Thread-compatible; the bytes are shared between copies.
class Buffer {
 public:
  Buffer() = default;

  // Owned, zero-filled, 64-byte aligned. Throws std::bad_alloc: check sizes before (see io and model).
  static Buffer allocate(size_t bytes) {
    const size_t rounded =
        (bytes + 63) / 64 * 64 + 64;  // one line of slack: kernels may read a whole vector at the end
    void* p = std::aligned_alloc(64, rounded);
    if (p == nullptr) throw std::bad_alloc();
    __builtin_memset(p, 0, rounded);
    Buffer b;
    b.owner_ = std::shared_ptr<void>(p, std::free);
    b.data_ = static_cast<std::byte*>(p);
    b.size_ = bytes;
    return b;
  }

  // A view of bytes that `owner` keeps alive. Never written through.
  static Buffer borrow(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
    Buffer b;
    b.owner_ = std::const_pointer_cast<void>(std::move(owner));
    b.data_ = const_cast<std::byte*>(bytes.data());
    b.size_ = bytes.size();
    b.borrowed_ = true;
    return b;
  }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  bool borrowed() const { return borrowed_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  // Only for owned buffers.
  std::span<std::byte> mutable_bytes() { return {data_, size_}; }

  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }
  template <class T>
  T* mutable_as() {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::shared_ptr<void> owner_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  bool borrowed_ = false;
};

}  // namespace halfbyte
