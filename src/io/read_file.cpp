#include "io/read_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file_descriptor.h"
#include "base/quote_path.h"
#include "io/foreign_file.h"
#include "io/message.h"

namespace halfbyte {
namespace {

constexpr off_t kMaxBytes = off_t{64} << 20;

}  // namespace

Status refuse_dangling_link(const std::string& path) {
  std::error_code failure;
  if (!std::filesystem::is_symlink(path, failure) || std::filesystem::exists(path, failure)) return {};
  const std::string target = std::filesystem::read_symlink(path, failure).string();
  return invalid_data(shown(path) + ": is a link to " + quote_path(target) +
                      ", which is not a file that is there; download the model again");
}

Result<std::optional<std::string>> read_small_file(const std::string& path) {
  const auto fail = [&](const std::string& text) { return invalid_data(shown(path) + ": " + text); };
  // Not blocking: a pipe in the place of a file must not hang the program.
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) {
    const int reason = errno;
    HB_TRY(refuse_dangling_link(path));
    if (reason == ENOENT || reason == ENOTDIR) return std::optional<std::string>();
    return fail(std::string("cannot be opened: ") + std::strerror(reason));
  }
  struct stat info = {};
  if (fstat(file.get(), &info) != 0) return fail(std::string("cannot be read: ") + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return fail("is not a regular file");
  if (info.st_size > kMaxBytes) {
    return fail("is " + std::to_string(info.st_size) + " bytes long, the limit is " + std::to_string(kMaxBytes));
  }
  std::string text(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t n = read(file.get(), text.data() + done, text.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail(std::string("cannot be read: ") + std::strerror(errno));
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  text.resize(done);
  HB_TRY(refuse_foreign_file(path, text));
  return std::optional<std::string>(std::move(text));
}

Result<std::unique_ptr<JsonDocument>> parse_model_json(std::string_view json, const std::string& file) {
  auto document = JsonDocument::parse(without_python_numbers(json), file);
  if (!document.ok()) return invalid_data(document.status().message() + "; download the file again, or mend it");
  return document;
}

}  // namespace halfbyte
