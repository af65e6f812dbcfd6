#include "command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "base/size_text.h"

namespace halfbyte::tools {
namespace {

std::atomic<bool> g_interrupted{false};

void on_interrupt(int) {
  // The second one means it: the first may be waiting for something that does not end.
  if (g_interrupted.exchange(true)) _exit(kInterrupted);
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool terminal_is_dumb() {
  const char* term = std::getenv("TERM");
  return term == nullptr || std::string_view(term) == "dumb";
}

}  // namespace

CLI::Option* Flags::with_env(CLI::Option* option, const std::string& names) {
  // The long name: behind the last "--", up to a comma; a positional argument's own name.
  const size_t dashes = names.find("--");
  std::string name = names.substr(dashes == std::string::npos ? 0 : dashes + 2);
  name = name.substr(0, name.find_first_of(",!"));
  std::string variable = "HALFBYTE_";
  for (const char c : name) variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return option->envname(variable);
}

int fail(const Status& status) {
  if (status.code() == StatusCode::kCancelled) return kInterrupted;
  fmt::print(stderr, "error: {}\n", status.message());
  return status.code() == StatusCode::kInternal ? kFailed : kBadInput;
}

int fail(std::string_view message) {
  fmt::print(stderr, "error: {}\n", message);
  return kBadInput;
}

void note(std::string_view message) {
  fmt::print(stderr, "note: {}\n", message);
}

bool stdin_is_terminal() {
  return isatty(STDIN_FILENO) == 1;
}
bool stdout_is_terminal() {
  return isatty(STDOUT_FILENO) == 1;
}
bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) == 1;
}
bool stdout_has_color() {
  return stdout_is_terminal() && !is_set("NO_COLOR") && !terminal_is_dumb();
}

bool write_out(std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
}

void catch_interrupts() {
  struct sigaction action {};
  action.sa_handler = on_interrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read of the terminal comes back
  sigaction(SIGINT, &action, nullptr);
}

bool interrupted() {
  return g_interrupted.load();
}
void clear_interrupt() {
  g_interrupted.store(false);
}

Status read_size(const std::string& text, std::string_view flag, int64_t& value) {
  if (text.empty()) return {};
  HB_ASSIGN(value, parse_size(text, flag));
  return {};
}

}  // namespace halfbyte::tools
