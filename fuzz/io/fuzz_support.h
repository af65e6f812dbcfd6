// What every fuzz target of io checks beside not crashing: a refusal is one printable line.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "halfbyte/status.h"

namespace halfbyte::fuzzing {

inline void require(bool condition) {
  if (!condition) std::abort();
}

inline void check_message(const Status& status) {
  if (status.ok()) return;
  require(!status.message().empty() && status.message().size() < 10000);
  require(!find_invalid_utf8(status.message()));
  for (const char c : status.message()) require(static_cast<unsigned char>(c) >= 0x20 && c != 0x7F);
  // An internal error would be a fault of ours, whatever the file.
  require(status.code() != StatusCode::kInternal);
}

// The bytes as a file that can be mapped, without a disk.
class MemoryFile {
 public:
  MemoryFile() : fd_(memfd_create("fuzz", MFD_CLOEXEC)) { require(fd_ >= 0); }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path(std::string_view bytes) {
    require(ftruncate(fd_, 0) == 0);
    require(pwrite(fd_, bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
    return "/proc/self/fd/" + std::to_string(fd_);
  }

 private:
  int fd_;
};

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

}  // namespace halfbyte::fuzzing
