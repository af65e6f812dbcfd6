// An open file of the system, closed at the end of its scope.
#pragma once

#include <unistd.h>

namespace halfbyte {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return fd_; }  // negative: it could not be opened, see errno

 private:
  int fd_;
};

}  // namespace halfbyte
