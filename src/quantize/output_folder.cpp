#include "quantize/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <system_error>
#include <vector>

#include "base/mapped_file.h"
#include "base/quote.h"
#include "io/mapping_guard.h"
#include "io/message.h"
#include "quantize/exported_names.h"

namespace halfbyte {
namespace fs = std::filesystem;
namespace {

// The folder being written, for a source file that shrinks while it is read: then no destructor runs.
std::atomic<const std::string*> g_unfinished{nullptr};

void remove_unfinished() {
  const std::string* folder = g_unfinished.exchange(nullptr);
  std::error_code ignored;
  if (folder != nullptr) fs::remove_all(*folder, ignored);
}

Status io_error(const std::string& path, const std::string& what, int error) {
  const std::string text = shown(path) + ": " + what + ": " + std::strerror(error);
  if (error == ENOSPC || error == EDQUOT) return resource_exhausted(text + "; free some disk space and start again");
  return invalid_argument(text);
}

constexpr const char* kUnfinished = ".partial-halfbyte";  // behind the folder's name

bool is_own_weights(const fs::path& path) {
  std::string begin(8 + kOwnHeader.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  return file.read(begin.data(), static_cast<std::streamsize>(begin.size())) && begin.substr(8) == kOwnHeader;
}

// Only what export_model wrote is replaced: its files, nothing beside them, and weights that say so. A plan alone says
// nothing, for `halfbyte calibrate` writes one into any folder.
Status check_own_folder(const std::string& out) {
  bool weights = false;
  std::error_code failure;
  for (fs::directory_iterator it(out, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    const bool file = it->symlink_status(ignored).type() == fs::file_type::regular;
    if (!file || !is_exported_name(name)) {
      return invalid_argument("holds " + quote(name) +
                              ", which Halfbyte did not write, so it is not replaced; remove it yourself");
    }
    if (!name.ends_with(".safetensors")) continue;
    if (!is_own_weights(it->path())) {
      return invalid_argument(name + " was not written by Halfbyte, so the folder is not replaced; remove it yourself");
    }
    weights = true;
  }
  if (failure) return invalid_argument("cannot be read: " + failure.message());
  if (weights) return {};
  return invalid_argument("has no weights that Halfbyte wrote, so it is not replaced; remove it yourself");
}

// Whether an existing `out` may be used or replaced. `replaces` is set when there is an old folder with contents.
Status check_target(const std::string& out, bool force, bool& replaces) {
  std::error_code failure;
  const fs::file_status status = fs::symlink_status(out, failure);
  if (status.type() == fs::file_type::not_found) return {};
  if (failure) return invalid_argument(shown(out) + ": cannot be read: " + failure.message());
  if (status.type() != fs::file_type::directory) {
    return invalid_argument(shown(out) + ": exists and is not a folder; name a folder that does not exist yet");
  }
  const bool empty = fs::is_empty(out, failure);
  if (failure) return invalid_argument(shown(out) + ": cannot be read: " + failure.message());
  if (empty) return {};
  if (!force)
    return invalid_argument(shown(out) + ": exists and is not empty; name another folder, or replace it with --force");
  HB_TRY(check_own_folder(out).with_context(shown(out)));
  replaces = true;
  return {};
}

Status sync_folder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return io_error(path, "cannot be opened", errno);
  // Some file systems cannot sync folders (EINVAL); the rename is then as durable as they make it.
  const int result = fsync(fd), error = errno;
  ::close(fd);
  return result == 0 || error == EINVAL ? Status() : io_error(path, "cannot be flushed", error);
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Makes path + suffix + six random characters. Not mkdtemp: that makes a private folder, and a model is as public as the
// user's umask says.
Result<std::string> make_folder_beside(const std::string& path, const char* suffix) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyz0123456789";
  constexpr int kTries = 100;
  std::random_device random;
  for (int i = 0;; ++i) {
    std::string name = path + suffix;
    for (int c = 0; c < 6; ++c) name += kLetters[random() % kLetters.size()];
    if (mkdir(name.c_str(), 0777) == 0) return name;
    if (errno != EEXIST || i == kTries) return io_error(path, "cannot be made", errno);
  }
}

// Removes what a killed run left in the folder that it was writing.
Status clear_leftovers(const std::string& folder) {
  std::vector<fs::path> files;
  std::error_code failure;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end; it.increment(failure)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (it->symlink_status(ignored).type() != fs::file_type::regular || !is_exported_name(name))
      return invalid_argument(shown(folder) + ": holds " + quote(name) +
                              ", which Halfbyte did not write; remove the folder yourself");
    files.push_back(it->path());
  }
  for (const fs::path& file : files)
    if (!failure) fs::remove(file, failure);
  return failure ? invalid_argument(shown(folder) + ": cannot be cleared: " + failure.message()) : Status();
}

// Makes the folder in which `out` is written and holds it as long as the descriptor is open, so that of two processes the
// second is refused before its work. Where the file system has no locks, a folder that is there counts as held.
Result<std::unique_ptr<FileDescriptor>> claim(const std::string& folder, const std::string& out) {
  while (true) {
    const bool made = mkdir(folder.c_str(), 0777) == 0;
    if (!made && errno != EEXIST) return io_error(out, "cannot be made", errno);
    auto held =
        std::make_unique<FileDescriptor>(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (held->get() < 0 && errno == ENOENT) continue;  // who wrote it has just ended
    if (held->get() < 0) return io_error(folder, "cannot be opened", errno);
    if (flock(held->get(), LOCK_EX | LOCK_NB) != 0 && (!made || errno == EWOULDBLOCK))
      return invalid_argument(shown(out) + ": another halfbyte quantize is writing it, in " + shown(folder) +
                              "; wait for it to end, name another folder, or remove that one if none runs");
    struct stat ours {
    }, there{};
    const bool still_there = fstat(held->get(), &ours) == 0 && stat(folder.c_str(), &there) == 0 &&
                             ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
    if (!still_there) continue;  // put in place or removed between our two steps
    if (!made) HB_TRY(clear_leftovers(folder));
    return held;
  }
}

}  // namespace

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status OutputFile::write_at(uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error(path_, "cannot be written", errno);
    bytes = bytes.subspan(static_cast<size_t>(n));
    offset += static_cast<uint64_t>(n);
  }
  return {};
}

Status OutputFile::close() {
  const int synced = fsync(fd_), sync_error = errno;
  const int closed = ::close(fd_), close_error = errno;
  fd_ = -1;
  if (synced != 0) return io_error(path_, "cannot be flushed", sync_error);
  if (closed != 0) return io_error(path_, "cannot be closed", close_error);
  return {};
}

Result<std::unique_ptr<OutputFolder>> OutputFolder::create(const std::string& out, bool force) {
  std::unique_ptr<OutputFolder> folder(new OutputFolder());
  folder->out_ = out;
  while (folder->out_.size() > 1 && folder->out_.back() == '/') folder->out_.pop_back();
  HB_TRY(check_target(folder->out_, force, folder->replaces_));
  std::error_code failure;
  fs::create_directories(parent_of(folder->out_), failure);
  if (failure) return invalid_argument(shown(parent_of(folder->out_)) + ": cannot be made: " + failure.message());
  const std::string partial = folder->out_ + kUnfinished;
  HB_ASSIGN(folder->held_, claim(partial, folder->out_));
  folder->partial_ = partial;
  // Again: another process may have ended its work meanwhile, and now no other can.
  HB_TRY(check_target(folder->out_, force, folder->replaces_));
  g_unfinished.store(&folder->partial_);
  set_mapping_failure_cleanup(remove_unfinished);
  return folder;
}

OutputFolder::~OutputFolder() {
  g_unfinished.store(nullptr);
  if (partial_.empty()) return;
  std::error_code ignored;
  fs::remove_all(partial_, ignored);
}

Result<std::unique_ptr<OutputFile>> OutputFolder::create_file(const std::string& name) {
  const std::string path = partial_ + "/" + name;
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0) return io_error(path, "cannot be made", errno);
  return std::make_unique<OutputFile>(fd, path);
}

Status OutputFolder::write_text(const std::string& name, std::string_view text) {
  HB_ASSIGN(const auto file, create_file(name));
  HB_TRY(file->write_at(0, std::as_bytes(std::span(text.data(), text.size()))));
  return file->close();
}

Status OutputFolder::copy_file(const std::string& from, const std::string& name) {
  HB_ASSIGN(const auto mapped, MappedFile::open(from));
  HB_ASSIGN(const auto file, create_file(name));
  HB_TRY(file->write_at(0, mapped->bytes()));
  return file->close();
}

Status OutputFolder::commit() {
  HB_TRY(sync_folder(partial_));
  std::string aside;
  if (replaces_) {
    HB_ASSIGN(aside, make_folder_beside(out_, ".old-"));
    if (rename(out_.c_str(), aside.c_str()) != 0) {
      const int error = errno;
      rmdir(aside.c_str());
      return io_error(out_, "cannot be moved aside", error);
    }
  }
  if (rename(partial_.c_str(), out_.c_str()) != 0) {
    const int error = errno;
    if (replaces_ && rename(aside.c_str(), out_.c_str()) != 0) {
      return io_error(out_, "cannot be put in place, and the old folder is now " + shown(aside), error);
    }
    return io_error(out_, "cannot be put in place", error);
  }
  g_unfinished.store(nullptr);
  partial_.clear();
  std::error_code ignored;
  if (replaces_) fs::remove_all(aside, ignored);
  return sync_folder(parent_of(out_));
}

}  // namespace halfbyte
