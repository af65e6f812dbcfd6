#include "text_input.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/size_text.h"
#include "command.h"

namespace halfbyte::tools {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;

// Whether reading stdin would give something now.
bool stdin_has_text() {
  struct stat facts {};
  if (fstat(STDIN_FILENO, &facts) != 0) return false;
  if (S_ISREG(facts.st_mode)) return lseek(STDIN_FILENO, 0, SEEK_CUR) < facts.st_size;
  int waiting = 0;
  return (S_ISFIFO(facts.st_mode) || S_ISSOCK(facts.st_mode)) && ioctl(STDIN_FILENO, FIONREAD, &waiting) == 0 &&
         waiting > 0;
}

}  // namespace

Result<std::string> read_stdin_text() {
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (n == 0) return text;
    if (n < 0 && errno == EAGAIN) {  // whoever started us made it so
      pollfd ready{STDIN_FILENO, POLLIN, 0};
      poll(&ready, 1, /*timeout=*/-1);
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0)
      return invalid_argument(
          fmt::format("stdin cannot be read: {}; give the text as an argument or pipe it in", std::strerror(errno)));
    text.append(buffer, static_cast<size_t>(n));
    if (text.size() > kMaxBytes)
      return invalid_argument(fmt::format(
          "stdin has more than {} of text, which no model's context holds; pipe in less", format_bytes(kMaxBytes)));
  }
}

UnreadStdin::UnreadStdin(std::string_view what, bool watch) : what_(what), watch_(watch) {
  look();
}

void UnreadStdin::look() {
  if (!watch_ || !stdin_has_text()) return;
  watch_ = false;
  note(fmt::format("there is text on stdin, and it is not read: the {} was given otherwise; to send both, pipe both in",
                   what_));
}

Status explain_missing_model(const std::string& model, std::string_view flag, Status status) {
  std::error_code failure;
  const bool looks_like_path = model.find(' ') == std::string::npos && model.find_first_of("/.") != std::string::npos;
  if (looks_like_path || model.empty() || std::filesystem::exists(model, failure)) return status;
  return {status.code(), fmt::format("{}; the first argument is the MODEL: to ask the default model, write {} \"...\"",
                                     status.message(), flag)};
}

}  // namespace halfbyte::tools
