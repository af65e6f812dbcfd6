#include "tensor/buffer.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace halfbyte {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kLargePage = size_t{2} << 20;
// From here on a mapping of its own: fewer TLB misses while weights stream, zero pages without writing them, and memory
// that goes back to the system when it is freed.
constexpr size_t kMapFrom = 2 * kLargePage;

// A private mapping that begins on a large page; `bytes` and the slack around it are unmapped together.
std::shared_ptr<void> map_zeroed(size_t bytes, void** begin) {
  const size_t mapped = bytes + kLargePage;
  void* base = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) throw std::bad_alloc();
  const auto address = reinterpret_cast<uintptr_t>(base);
  *begin = reinterpret_cast<void*>((address + kLargePage - 1) / kLargePage * kLargePage);
#if defined(MADV_HUGEPAGE)
  madvise(*begin, bytes, MADV_HUGEPAGE);  // a wish: without it everything works, a little slower
#endif
  return std::shared_ptr<void>(*begin, [base, mapped](void*) { munmap(base, mapped); });
}

}  // namespace

Buffer Buffer::allocate(size_t bytes) {
  if (bytes > SIZE_MAX / 2) throw std::bad_alloc();
  const size_t rounded = (bytes + kLine - 1) / kLine * kLine + kLine;
  Buffer b;
  void* p = nullptr;
  if (rounded >= kMapFrom) {
    b.owner_ = map_zeroed(rounded, &p);
  } else {
    p = std::aligned_alloc(kLine, rounded);
    if (p == nullptr) throw std::bad_alloc();
    std::memset(p, 0, rounded);
    b.owner_ = std::shared_ptr<void>(p, std::free);
  }
  b.data_ = static_cast<std::byte*>(p);
  b.size_ = bytes;
  return b;
}

}  // namespace halfbyte
