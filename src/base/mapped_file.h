// A file mapped read-only. Thread-safe after open(): the bytes never change through it. If another program shortens the
// file while it is mapped, reading the lost part ends this process with SIGBUS, as with every mapped file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"

namespace halfbyte {

class MappedFile {
 public:
  // not_found when there is no such file, invalid_data for a folder, an empty file is a view of 0 bytes.
  static Result<std::shared_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  const std::string& path() const { return path_; }

 private:
  MappedFile() = default;
  std::string path_;
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace halfbyte
