// Bytes that are either owned (64-byte aligned) or borrowed from a mapped file that they keep alive.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

namespace halfbyte {

// Movable and cheap to copy (shared). Thread-compatible; the bytes are shared between copies.
class Buffer {
 public:
  Buffer() = default;

  // Owned, zero-filled, 64-byte aligned, with 64 more readable bytes behind the end: kernels may read a whole vector
  // there. Large ones lie on large pages where the system has them, and their pages belong to the thread that first
  // writes them. Throws std::bad_alloc: check sizes before (see io and model).
  static Buffer allocate(size_t bytes);

  // A view of bytes that `owner` keeps alive. Never written through.
  static Buffer borrow(std::span<const std::byte> bytes, std::shared_ptr<const void> owner) {
    Buffer b;
    b.owner_ = std::const_pointer_cast<void>(std::move(owner));
    b.data_ = const_cast<std::byte*>(bytes.data());
    b.size_ = bytes.size();
    b.borrowed_ = true;
    return b;
  }

  // The next `bytes` bytes of an owned buffer that is being given away in parts: each keeps the whole alive and is what
  // allocate() would give. part_bytes() says how much of it one takes.
  Buffer take_part(size_t bytes, size_t& taken) const {
    Buffer b = *this;
    b.data_ += taken;
    b.size_ = bytes;
    taken += part_bytes(bytes);
    return b;
  }
  static constexpr size_t part_bytes(size_t bytes) { return (bytes + 63) / 64 * 64 + 64; }

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
