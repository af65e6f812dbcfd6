// The binary `halfbyte`: one file a command beside this one.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <sstream>

#include "base/cpu_features.h"
#include "base/cpu_topology.h"
#include "base/quote.h"
#include "base/thread_pool.h"
#include "command.h"
#include "halfbyte/version.h"
#include "io/mapping_guard.h"
#include "kernels/registry.h"

namespace halfbyte::tools {
namespace {

std::string version_text() {
  const auto best = choose_isa("");
  return fmt::format("halfbyte {} (commit {}, {})\ncpu       {}\nfeatures  {}\nkernels   {}\nthreads   {}\n", version(),
                     build_commit(), build_compiler(), cpu_model_name(), cpu_features_text(cpu_features()),
                     best.ok() ? isa_name(*best) : "none", default_thread_count());
}

// The parser's own words say neither what was expected nor what to do: "Could not convert: --samples = x", "--ctx: 1
// required TEXT missing", "--ctx: At Most 1 required but received 2".
std::string clearer(std::string message, const CLI::App& command) {
  constexpr std::string_view kConvert = "Could not convert: ", kUnexpected = "The following argument",
                             kAtMost = ": At Most 1 required but received ";
  if (message.starts_with(kConvert)) {
    const std::string rest = message.substr(kConvert.size());
    const size_t equals = rest.find(" = ");
    const CLI::Option* option = command.get_option_no_throw(rest.substr(0, equals));
    if (equals == std::string::npos || option == nullptr) return message;
    const bool is_flag = option->get_items_expected_max() == 0;
    return fmt::format("{}: is {}, expected {}", rest.substr(0, equals), quote(rest.substr(equals + 3)),
                       is_flag ? "true or false" : "a whole number");
  }
  const std::string name = message.substr(0, message.find(':'));
  if (message.ends_with(" missing") && name.starts_with('-')) return name + ": the value is missing";
  if (const size_t at = message.find(kAtMost); at != std::string::npos)
    return fmt::format("{}: is given {} times{}, expected once", name, message.substr(at + kAtMost.size()),
                       name == "--think" ? " (--no-think counts)" : "");
  if (message.starts_with(kUnexpected)) message += "; a text that starts with '-' goes behind --";
  return message;
}

// The environment variable that a refused value came from: " (HALFBYTE_TOP_P)".
std::string origin(const std::string& message, const CLI::App& command, std::span<char*> arguments) {
  const std::string name = message.substr(0, message.find(':'));
  const CLI::Option* option = command.get_option_no_throw(name);
  if (option == nullptr || option->get_envname().empty() || !from_environment(option->get_envname().c_str())) return "";
  const auto names_it = [&](const char* argument) { return std::string_view(argument).starts_with(name); };
  if (std::any_of(arguments.begin(), arguments.end(), names_it)) return "";
  return fmt::format(" (from {})", option->get_envname());
}

// Help and version are answers; everything else the parser refuses is one line.
int parse_failure(const CLI::App& app, const CLI::ParseError& failure, std::span<char*> arguments) {
  const CLI::App* at = &app;
  std::string command = "halfbyte";
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  if (failure.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    std::ostringstream text;
    app.exit(failure, text, text);
    return write_out(text.str()) ? kDone : fail_output();
  }
  // Whoever asks for help may have set a variable to what it refuses.
  if (at->get_help_ptr()->count() > 0) return write_out(app.help()) ? kDone : fail_output();
  std::string message = clearer(failure.what(), *at);
  for (char& c : message) c = c == '\n' ? ' ' : c;
  return fail(fmt::format("{}{}; see {} --help", message, origin(message, *at, arguments), command));
}

// Some versions of CLI11 pass over a variable whose value they refuse. Given as if it had been typed, it throws.
void refuse_bad_environment(CLI::App& command) {
  for (CLI::Option* option : command.get_options()) {
    const char* value = option->get_envname().empty() ? nullptr : std::getenv(option->get_envname().c_str());
    if (value == nullptr || *value == '\0' || option->count() > 0) continue;
    option->add_result(value);
    option->run_callback();
  }
  for (CLI::App* inner : command.get_subcommands()) refuse_bad_environment(*inner);
}

// The help without CLI11's own marks: "{false}" at a flag that switches off, the type twice where a range is checked.
class HelpText : public CLI::Formatter {
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    std::string name = CLI::Formatter::make_option_name(option, is_positional);
    if (const size_t mark = name.find("{false}"); mark != std::string::npos) name.erase(mark, 7);
    return name;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);  // " FLOAT:FLOAT in [0 - 100]"
    const size_t range = text.find(" in ["), colon = text.rfind(':', range);
    if (range != std::string::npos && colon != std::string::npos) text.erase(colon, range - colon);
    return text;
  }
};

int run_main(int argc, char** argv) {
  occupy_standard_streams();
  see_children();
  CLI::App app{"Runs reasoning language models in 4-bit floating point.", "halfbyte"};
  app.formatter(std::make_shared<HelpText>());
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);
  app.footer(
      "Every flag can be set in the environment: --max-tokens is HALFBYTE_MAX_TOKENS (each command's --help names "
      "them); the\n"
      "command line wins.\n"
      "Exit codes: 0 done, 1 the work ran and found a failure, 2 bad input or environment, 130 interrupted.");

  struct Entry {
    const char* name;
    const char* help;
    Command (*add)(CLI::App&);
  };
  static constexpr Entry kCommands[] = {
      {"run", "Answer a prompt, a pipe, or a person", add_run},
      {"inspect", "Show a model: what is in it, its plan, the memory it takes", add_inspect},
      {"tokenize", "Show the tokens of a text", add_tokenize},
      {"bench", "Measure tokens per second against the machine's read bandwidth", add_bench},
      {"quantize", "Round a model and write it as a folder", add_quantize},
      {"trace", "Answer a prompt and show how sure the model was of each token", add_trace},
      {"calibrate", "Find the values that a method needs for this model", add_calibrate},
      {"eval", "Answer the questions of a file, and grade the answers", add_eval},
  };
  const std::string_view first = argc > 1 ? argv[1] : "";
  std::string known;
  Command run;
  for (const Entry& entry : kCommands) {
    CLI::App* command = app.add_subcommand(entry.name, entry.help);
    // The others get no flags: CLI11 would read the variables of all commands, and a bad one would end any of them.
    if (first == entry.name) run = entry.add(*command);
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  }
  if (argc < 2) return fail(fmt::format("no command was named; the commands are {}; see halfbyte --help", known));
  if (!run && first != "--help" && first != "-h" && first != "--version") {
    return fail(
        first.starts_with('-')
            ? fmt::format("{} is no option of halfbyte itself: a command comes first, then its options; the "
                          "commands are {}; see halfbyte --help",
                          quote(first), known)
            : fmt::format("there is no command {}; the commands are {}; see halfbyte --help", quote(first), known));
  }
  try {
    // Backwards, as CLI11 wants them.
    std::vector<std::string> arguments;
    for (int i = argc - 1; i > 0; --i) arguments.push_back(Flags::mark_brackets(argv[i]));
    app.parse(std::move(arguments));
    for (CLI::App* command : app.get_subcommands()) refuse_bad_environment(*command);
  } catch (const CLI::ParseError& failure) {
    return parse_failure(app, failure, {argv, static_cast<size_t>(argc)});
  }
  catch_interrupts();
  install_mapping_guard();  // a model file that shrinks ends the command with a line, not a core dump
  return run ? run() : kBadInput;
}

}  // namespace
}  // namespace halfbyte::tools

int main(int argc, char** argv) {
  try {
    return halfbyte::tools::run_main(argc, argv);
  } catch (const std::bad_alloc&) {
    return halfbyte::tools::fail(
        "out of memory; choose a smaller model, a shorter --ctx, fewer --threads or a plan with fewer bits");
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "error: internal: %s\n", failure.what());
    return halfbyte::tools::kFailed;
  }
}
