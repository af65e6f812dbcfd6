// What the commands of the binary share: exit codes, flags with environment variables, messages, the terminal, Ctrl-C.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte::tools {

// What every command returns.
inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;         // the work ran and found a failure
inline constexpr int kBadInput = 2;       // bad input or environment
inline constexpr int kInterrupted = 130;  // Ctrl-C

// Adds options to a command; each has an environment variable, HALFBYTE_ and its long name. The command line wins.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  // `names`: "-o,--out", or "MODEL" for a positional argument.
  template <class T>
  CLI::Option* option(const std::string& names, T& value, const std::string& help) {
    return with_env(app_.add_option(names, value, help), names);
  }
  CLI::Option* flag(const std::string& names, bool& value, const std::string& help) {
    return with_env(app_.add_flag(names, value, help), names);
  }
  // With a variable of another name, where the same word means something else to another command.
  template <class T>
  CLI::Option* option_as(const std::string& names, T& value, const std::string& help, const std::string& variable) {
    return app_.add_option(names, value, help)->envname(variable);
  }
  CLI::Option* flag_as(const std::string& names, bool& value, const std::string& help, const std::string& variable) {
    return app_.add_flag(names, value, help)->envname(variable);
  }
  // A positional argument that only the command line gives.
  template <class T>
  CLI::Option* argument(const std::string& name, T& value, const std::string& help) {
    return app_.add_option(name, value, help);
  }

 private:
  static CLI::Option* with_env(CLI::Option* option, const std::string& names);
  CLI::App& app_;
};

// A command: adds its flags to `app` and returns what runs it.
using Command = std::function<int()>;
Command add_run(CLI::App& app);
Command add_inspect(CLI::App& app);
Command add_tokenize(CLI::App& app);
Command add_bench(CLI::App& app);
Command add_quantize(CLI::App& app);

// One line on stderr, "error: ...", and the exit code that goes with the status.
int fail(const Status& status);
int fail(std::string_view message);   // kBadInput
void note(std::string_view message);  // "note: ..." on stderr

// --- the terminal ---
bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();
// Whether to colour what goes to stdout: a terminal that can, and NO_COLOR is not set.
bool stdout_has_color();
// Writes to stdout at once; false when nobody reads any more or the disk is full.
bool write_out(std::string_view text);

// --- Ctrl-C ---
// From now on the first Ctrl-C sets the flag; one more ends the process at once with code 130.
void catch_interrupts();
bool interrupted();
void clear_interrupt();

// --- values ---
// "32K", "4GiB": sets `value` unless the text is empty.
Status read_size(const std::string& text, std::string_view flag, int64_t& value);

}  // namespace halfbyte::tools
