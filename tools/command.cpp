#include "command.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/quote.h"
#include "base/size_text.h"

namespace halfbyte::tools {
namespace {

constexpr char kBracketMark = '\x1f';

std::atomic<bool> g_hold{false};  // the command looks at g_signal itself
std::atomic<int> g_signal{0};     // the one that was held
std::atomic<bool> g_holds_pipe{false};
int g_output_error = 0;  // errno of the last failed write to stdout

void on_signal(int signal) {
  int none = 0;
  // The second one means it: the first may be waiting for something that does not end.
  if (g_hold.load() && g_signal.compare_exchange_strong(none, signal)) return;
  // A progress line is left without its end.
  if (isatty(STDERR_FILENO) == 1) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, "\n", 1);
  }
  _exit(128 + signal);
}

void handle(int signal) {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // no SA_RESTART: a read of the terminal comes back
  sigaction(signal, &action, nullptr);
}

[[noreturn]] void die_by(int signal) {
  std::signal(signal, SIG_DFL);
  std::raise(signal);
  _exit(128 + signal);
}

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

// A variable may be meant for other runs.
bool was_typed(const CLI::Option& option) {
  return option.count() > 0 && !is_set(option.get_envname().c_str());
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

std::string Flags::mark_brackets(std::string argument) {
  const bool marked = !argument.empty() && (argument[0] == '[' || argument[0] == kBracketMark);
  return marked ? kBracketMark + argument : argument;
}

CLI::Option* Flags::as_written(CLI::Option* option) {
  const auto unmark = [](std::string& value) -> std::string {
    if (!value.empty() && value[0] == kBracketMark) value.erase(0, 1);
    return "";
  };
  return option->transform(CLI::Validator(unmark, ""));
}

CLI::Option* Flags::not_empty(CLI::Option* option) {
  const auto check = [](const std::string& value) -> std::string {
    return value.empty() ? "the value is empty; name one, or leave it out" : "";
  };
  return option->check(CLI::Validator(check, ""));
}

CLI::Validator Flags::truth_value() {
  const auto check = [](const std::string& text) -> std::string {
    const std::string lower = CLI::detail::to_lower(text);
    for (const std::string_view known : {"true", "false", "on", "off", "yes", "no", "1", "0"})
      if (lower == known) return "";
    return fmt::format("is {}, expected true or false", quote(text));
  };
  return CLI::Validator(check, "");
}

int fail(const Status& status) {
  if (status.code() == StatusCode::kCancelled) return end_interrupted();
  print_err(fmt::format("error: {}\n", status.message()));
  return status.code() == StatusCode::kInternal ? kFailed : kBadInput;
}

int fail(std::string_view message) {
  print_err(fmt::format("error: {}\n", message));
  return kBadInput;
}

void note(std::string_view message) {
  print_err(fmt::format("note: {}\n", message));
}

void print_err(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
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
  std::fflush(stdout);  // what the line editor wrote comes first
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {  // whoever started us made it so
      pollfd ready{STDOUT_FILENO, POLLOUT, 0};
      poll(&ready, 1, /*timeout=*/-1);
    } else if (errno != EINTR) {  // a signal that is held: what was begun is written to its end
      g_output_error = errno;
      return false;
    }
  }
  return true;
}

int fail_output() {
  if (g_output_error == EPIPE && g_holds_pipe.load()) die_by(SIGPIPE);
  if (g_output_error == 0) return fail("stdout cannot be written");
  return fail(fmt::format("stdout cannot be written: {}", std::strerror(g_output_error)));
}

void occupy_standard_streams() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // The lowest free number is given out, so this one; for reading only, so that writes fail.
    if (fcntl(fd, F_GETFD) == -1 && errno == EBADF) {
      [[maybe_unused]] const int opened = open("/dev/null", O_RDONLY);
    }
  }
}

void see_children() {
  std::signal(SIGCHLD, SIG_DFL);
}

void catch_interrupts() {
  handle(SIGINT);
}

void hold_interrupts() {
  g_hold.store(true);
}

void hold_all_signals() {
  hold_interrupts();
  for (const int signal : {SIGTERM, SIGHUP}) {
    struct sigaction before {};
    // What is ignored from outside (nohup) stays ignored.
    if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) handle(signal);
  }
  if (std::signal(SIGPIPE, SIG_IGN) == SIG_DFL) g_holds_pipe.store(true);
  std::signal(SIGXFSZ, SIG_IGN);  // a file beyond the limit: the write says so
}

bool interrupted() {
  return g_signal.load() != 0;
}
void clear_interrupt() {
  g_signal.store(0);
}

int end_interrupted() {
  const int signal = g_signal.load();
  if (signal != 0 && signal != SIGINT) die_by(signal);
  return kInterrupted;
}

CLI::Validator whole_number(uint64_t low, uint64_t high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    uint64_t value = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    if (read.ec == std::errc() && read.ptr == end && value >= low && value <= high) return "";
    return fmt::format("is {}, expected a whole number from {} to {}", quote(text), low, high);
  };
  return CLI::Validator(check, "");
}

CLI::Validator decimal_number() {
  const auto check = [](const std::string& text) -> std::string {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, value);
    if (read.ec == std::errc() && read.ptr == end && std::isfinite(value)) return "";
    return fmt::format("is {}, expected a number", quote(text));
  };
  return CLI::Validator(check, "");
}

Status refuse_unused(const CLI::App& app, std::string_view where, std::initializer_list<const char*> others) {
  for (const char* name : others) {
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr || !was_typed(*option)) continue;
    return invalid_argument(fmt::format("{} has no effect {}; leave it out", name, where));
  }
  return {};
}

Status refuse_unused(const std::vector<const CLI::Option*>& others, std::string_view where) {
  const auto typed = std::ranges::find_if(others, [](const CLI::Option* option) { return was_typed(*option); });
  if (typed == others.end()) return {};
  return invalid_argument(
      fmt::format("--{} has no effect {}; leave it out", fmt::join((*typed)->get_lnames(), " or --"), where));
}

std::vector<const CLI::Option*> options_added(const CLI::App& app, const std::function<void()>& add) {
  const size_t before = app.get_options().size();
  add();
  std::vector<const CLI::Option*> options = app.get_options();
  options.erase(options.begin(), options.begin() + static_cast<std::ptrdiff_t>(before));
  return options;
}

Status refuse_before(const CLI::App& app, const CLI::App& below) {
  for (const CLI::Option* option : app.get_options()) {
    if (!was_typed(*option)) continue;
    return invalid_argument(fmt::format("{} has no effect before {}; put it behind, or leave it out",
                                        option->get_name(), below.get_name()));
  }
  return {};
}

bool from_environment(const char* variable) {
  return is_set(variable);
}

std::string counted(uint64_t number, std::string_view noun) {
  return fmt::format("{} {}{}", number, noun, number == 1 ? "" : "s");
}

Status read_size(const std::string& text, std::string_view flag, int64_t& value) {
  if (text.empty()) return {};
  // -1 is a number and no size, which is all that parse_size() would say.
  const bool negative = text.size() > 1 && text[0] == '-' && text[1] >= '0' && text[1] <= '9';
  if (!negative) {
    HB_ASSIGN(value, parse_size(text, flag));
  }
  if (negative || value < 1) return invalid_argument(fmt::format("{} is {}, expected 1 or more", flag, text));
  return {};
}

}  // namespace halfbyte::tools
