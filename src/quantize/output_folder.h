// A folder that appears whole or not at all.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace halfbyte {

// One file being written inside the unfinished folder. Bytes go to absolute offsets, in any order.
class OutputFile {
 public:
  OutputFile(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  Status write_at(uint64_t offset, std::span<const std::byte> bytes);
  // Flushes to the disk and closes.
  Status close();

 private:
  int fd_;
  std::string path_;
};

// Removed on destruction unless commit() succeeded.
class OutputFolder {
 public:
  // Makes OUT.partial-halfbyte beside `out`, or takes over what a killed run left there. Refuses what export_model's
  // contract says, and a folder that another process is writing.
  static Result<std::unique_ptr<OutputFolder>> create(const std::string& out, bool force);
  ~OutputFolder();
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;

  const std::string& partial_path() const { return partial_; }
  Result<std::unique_ptr<OutputFile>> create_file(const std::string& name);
  Status write_text(const std::string& name, std::string_view text);
  Status copy_file(const std::string& from, const std::string& name);

  // Renames to `out`; an old folder there (force) is moved aside first and then removed.
  Status commit();

 private:
  OutputFolder() = default;
  std::string out_;
  std::string partial_;
  std::unique_ptr<FileDescriptor> held_;  // locks partial_
  bool replaces_ = false;
};

}  // namespace halfbyte
