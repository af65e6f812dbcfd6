#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "base/file_descriptor.h"
#include "base/quote.h"

namespace halfbyte {
namespace {

Status open_error(const std::string& path, int error) {
  const std::string text = "cannot open " + quote(path, 4096) + ": ";
  if (error == ENOENT || error == ENOTDIR) return not_found(text + "there is no such file");
  if (error == EACCES) return invalid_argument(text + "no permission to read it");
  return invalid_argument(text + std::strerror(error));
}

}  // namespace

Result<std::shared_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  if (path.find('\0') != std::string::npos) return invalid_argument("a path with a zero byte: " + quote(path));
  // O_NONBLOCK: opening a pipe must not wait for its writer; it has no effect on a regular file.
  // The mapping lives on when the descriptor is closed.
  const FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return open_error(path, errno);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) return open_error(path, errno);
  if (S_ISDIR(info.st_mode)) return invalid_data(quote(path, 4096) + " is a folder, expected a file");
  if (!S_ISREG(info.st_mode)) return invalid_data(quote(path, 4096) + " is not a regular file");

  const std::optional<size_t> size = checked_cast<size_t>(info.st_size);
  if (!size) return invalid_data(quote(path, 4096) + " is larger than this machine can address");

  std::shared_ptr<MappedFile> file(new MappedFile());
  file->path_ = path;
  if (*size == 0) return file;  // mmap refuses a length of 0
  void* data = ::mmap(nullptr, *size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) {
    const int error = errno;
    return resource_exhausted("cannot map " + quote(path, 4096) + " (" + std::to_string(*size) +
                              " bytes): " + std::strerror(error));
  }
  file->data_ = static_cast<const std::byte*>(data);
  file->size_ = *size;
  return file;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

}  // namespace halfbyte
