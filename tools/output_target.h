// Where a command's result goes: stdout, or a file that appears whole or not at all.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/file_descriptor.h"
#include "base/result.h"

namespace halfbyte::tools {

// Opened before the work, so that a path that cannot be written is said at once and not after it.
class OutputTarget {
 public:
  // "-" is stdout. An existing file keeps its content until write(); what is no regular file (a pipe, /dev/null) is
  // written as it is. `flag` is named in errors.
  static Result<std::unique_ptr<OutputTarget>> open(const std::string& path, const std::string& flag);
  ~OutputTarget();
  OutputTarget(const OutputTarget&) = delete;
  OutputTarget& operator=(const OutputTarget&) = delete;

  // All of it, once.
  Status write(std::string_view text);
  bool is_stdout() const { return path_ == "-"; }
  const std::string& path() const { return path_; }

 private:
  OutputTarget() = default;
  Status failed(const char* what, int error) const;
  bool open_unnamed();
  std::string beside() const;  // a name for it

  std::string path_;
  std::string target_;   // path_ with symbolic links followed
  std::string unnamed_;  // where /proc shows a file that has no name yet; "": it has one
  std::string partial_;  // beside target_; "": none, or it is in place
  std::unique_ptr<FileDescriptor> file_;
};

}  // namespace halfbyte::tools
