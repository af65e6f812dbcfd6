#include "output_target.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "base/quote_path.h"
#include "command.h"

namespace halfbyte::tools {
namespace fs = std::filesystem;
Status OutputTarget::failed(const char* what, int error) const {
  const std::string text = fmt::format("{}: {}: {}", quote_path(path_), what, std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EFBIG)
    return resource_exhausted(text + "; make room and start again");
  return invalid_argument(text);
}

std::string OutputTarget::beside() const {
  return fmt::format("{}.partial-{}", target_, ::getpid());
}

// A file without a name in the target's folder, of which nothing is left however the process ends. False where the file
// system has none, or /proc does not show it: then one with a name, which a signal can leave behind.
bool OutputTarget::open_unnamed() {
  struct stat unused {};
  if (::lstat(beside().c_str(), &unused) != 0 && errno != ENOENT) return false;  // a name that cannot be: said at once
  const fs::path folder = fs::path(target_).parent_path();
  auto file = std::make_unique<FileDescriptor>(
      ::open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600));
  if (file->get() < 0) return false;
  const std::string shown = fmt::format("/proc/self/fd/{}", file->get());
  if (::access(shown.c_str(), F_OK) != 0) return false;
  unnamed_ = shown;
  file_ = std::move(file);
  return true;
}

Result<std::unique_ptr<OutputTarget>> OutputTarget::open(const std::string& path, const std::string& flag) {
  std::unique_ptr<OutputTarget> out(new OutputTarget());
  out->path_ = path;
  if (out->is_stdout()) return out;
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit: the write says so
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (status.type() == fs::file_type::directory) return out->failed("cannot be written", EISDIR).with_context(flag);
  out->target_ = fs::exists(status) ? fs::canonical(path, failure).string() : path;
  const bool regular = status.type() == fs::file_type::regular || status.type() == fs::file_type::not_found;
  // Beside a file that one may not write, one may often make another: renaming it over that would be a way around.
  if (fs::exists(status) && ::access(out->target_.c_str(), W_OK) != 0)
    return out->failed("cannot be written", errno).with_context(flag);
  if (regular && out->open_unnamed()) return out;
  if (regular) {
    out->partial_ = out->target_ + ".partial-XXXXXX";
    out->file_ = std::make_unique<FileDescriptor>(::mkostemp(out->partial_.data(), O_CLOEXEC));
    if (out->file_->get() < 0) out->partial_.clear();
  } else {
    out->file_ = std::make_unique<FileDescriptor>(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  }
  if (out->file_->get() < 0) return out->failed("cannot be written", errno).with_context(flag);
  return out;
}

OutputTarget::~OutputTarget() {
  if (!partial_.empty()) std::remove(partial_.c_str());
}

Status OutputTarget::write(std::string_view text) {
  if (is_stdout()) return write_out(text) ? Status() : invalid_argument("stdout cannot be written");
  while (!text.empty()) {
    const ssize_t n = ::write(file_->get(), text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return failed("cannot be written", errno);
    text.remove_prefix(static_cast<size_t>(n));
  }
  if (partial_.empty() && unnamed_.empty()) return {};
  // As public as the file it replaces, or as the user's umask says: mkostemp makes a private one.
  struct stat before {};
  const mode_t mask = ::umask(0);
  ::umask(mask);
  const mode_t mode = ::stat(target_.c_str(), &before) == 0 ? before.st_mode & 07777 : 0666 & ~mask;
  if (::fchmod(file_->get(), mode) != 0) return failed("cannot be written", errno);
  if (!unnamed_.empty()) {  // a link replaces no file: first beside it
    const std::string name = beside();
    std::remove(name.c_str());
    if (::linkat(AT_FDCWD, unnamed_.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0)
      return failed("cannot be put in place", errno);
    unnamed_.clear();
    partial_ = name;
  }
  if (std::rename(partial_.c_str(), target_.c_str()) != 0) return failed("cannot be put in place", errno);
  partial_.clear();
  return {};
}

}  // namespace halfbyte::tools
