// What the commands of the binary share: exit codes, flags with environment variables, messages, the terminal, Ctrl-C.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <optional>
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

// Checks that an option's value is a finite decimal number: CLI11 alone would read "0x1" and "nan".
CLI::Validator decimal_number();

// Adds options to a command; each has an environment variable, HALFBYTE_ and its long name. The command line wins.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  // `names`: "-o,--out", or "MODEL" for a positional argument. An empty value is refused: it comes from a variable that
  // is not set, and nobody means the default by it.
  template <class T>
  CLI::Option* option(const std::string& names, T& value, const std::string& help) {
    CLI::Option* added = not_empty(as_written(with_env(app_.add_option(names, value, help), names)));
    return holds_reals(value) ? added->check(decimal_number()) : added;
  }
  // A text that may be empty.
  CLI::Option* text(const std::string& names, std::string& value, const std::string& help) {
    return as_written(with_env(app_.add_option(names, value, help), names));
  }
  CLI::Option* flag(const std::string& names, bool& value, const std::string& help) {
    return with_env(app_.add_flag(names, value, help), names)->check(truth_value());
  }
  // "--think,!--no-think": true for the name, false for the one behind "!"; given twice is an error. (Bound to a variable,
  // CLI11 2.3 sets an optional<bool> and 2.4 counts an int where neither is given.)
  CLI::Option* either(const std::string& names, std::optional<bool>& value, const std::string& help) {
    const auto take = [&value](std::int64_t sum) { value = sum > 0; };
    return with_env(app_.add_flag_function(names, take, help), names)
        ->check(truth_value())
        ->multi_option_policy(CLI::MultiOptionPolicy::Throw);
  }
  // With a variable of another name, where the same word means something else to another command.
  template <class T>
  CLI::Option* option_as(const std::string& names, T& value, const std::string& help, const std::string& variable) {
    return not_empty(as_written(app_.add_option(names, value, help)->envname(variable)));
  }
  template <class T>
  CLI::Option* flag_as(const std::string& names, T& value, const std::string& help, const std::string& variable) {
    return app_.add_flag(names, value, help)->envname(variable)->check(truth_value());
  }
  // The words of a text, which only the command line gives.
  CLI::Option* words(const std::string& name, std::vector<std::string>& value, const std::string& help) {
    return as_written(app_.add_option(name, value, help)->type_name(""));
  }

  // CLI11 takes the argument "[1,2]" for a list of two. Each argument goes through mark_brackets() before parsing and
  // is put back as it was written when its option is read.
  static std::string mark_brackets(std::string argument);
  // What an environment variable may say of a flag: true, false, on, off, yes, no, 1, 0.
  static CLI::Validator truth_value();

 private:
  static constexpr bool holds_reals(const double&) { return true; }
  static constexpr bool holds_reals(const std::optional<double>&) { return true; }
  static constexpr bool holds_reals(const std::vector<double>&) { return true; }
  template <class T>
  static constexpr bool holds_reals(const T&) {
    return false;
  }
  static CLI::Option* as_written(CLI::Option* option);
  static CLI::Option* not_empty(CLI::Option* option);
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
Command add_trace(CLI::App& app);
Command add_calibrate(CLI::App& app);
Command add_eval(CLI::App& app);

// One line on stderr, "error: ...", and the exit code that goes with the status.
int fail(const Status& status);
int fail(std::string_view message);   // kBadInput
void note(std::string_view message);  // "note: ..." on stderr
// To stderr as it is. That stderr is closed or full changes nothing: the work is what counts.
void print_err(std::string_view text);

// --- the terminal ---
bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();
// Whether to colour what goes to stdout: a terminal that can, and NO_COLOR is not set.
bool stdout_has_color();
// Writes to stdout at once; false when nobody reads any more or the disk is full.
bool write_out(std::string_view text);
// What a command ends with when write_out() was false: a line that says why and kBadInput, or the signal that was held.
int fail_output();
// Opens what is closed of stdin, stdout and stderr so that reading and writing fail. Else the next file that is opened,
// perhaps a model that is being written, would take the number and get what was meant for the terminal.
void occupy_standard_streams();

// --- signals ---
// Whoever starts the process may have SIGCHLD ignored (`trap '' CHLD`), which is inherited and hides how children end.
void see_children();
// Ctrl-C ends the process at once with code 130: right as long as nothing is half-written.
void catch_interrupts();
// From now on the first Ctrl-C sets the flag, and the command ends by itself; one more ends the process at once.
void hold_interrupts();
// The same for a hang-up, a request to terminate, and a reader that goes away, which would leave half-written files.
void hold_all_signals();
bool interrupted();
void clear_interrupt();
// Ends the process by the signal that was held, so that whoever started it sees the usual status; Ctrl-C: kInterrupted.
int end_interrupted();

// --- values ---
// Checks that an option's value is a whole number of this range; the message says what was found.
CLI::Validator whole_number(uint64_t low, uint64_t high);
// That `read` takes the value: refused while the flags are read, so that the message names the flag or the variable.
template <class Read>
CLI::Validator readable(Read read) {
  return CLI::Validator([read](const std::string& text) { return read(text).status().message(); }, "");
}
// Refuses the first of `others` that was typed, which would be passed over in silence. `where`: "with --stepped".
Status refuse_unused(const CLI::App& app, std::string_view where, std::initializer_list<const char*> others);
Status refuse_unused(const std::vector<const CLI::Option*>& others, std::string_view where);
// The options that `add` adds to the command: a form of it that reads none of them refuses them all, without a list.
std::vector<const CLI::Option*> options_added(const CLI::App& app, const std::function<void()>& add);
// Refuses what was typed before the command `below`, which does not read it.
Status refuse_before(const CLI::App& app, const CLI::App& below);
// Whether this variable of the environment is set.
bool from_environment(const char* variable);
// "1 token", "20 tokens".
std::string counted(uint64_t number, std::string_view noun);
// "32K", "4GiB": sets `value` unless the text is empty. At least 1.
Status read_size(const std::string& text, std::string_view flag, int64_t& value);

}  // namespace halfbyte::tools
