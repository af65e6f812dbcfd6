// The binary `halfbyte`: one file a command beside this one.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <span>

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

// "Could not convert: --top-p = much" says neither what was expected nor where it comes from.
std::string clearer(std::string message, const CLI::App& command) {
  constexpr std::string_view kConvert = "Could not convert: ";
  if (message.starts_with(kConvert)) {
    const std::string rest = message.substr(kConvert.size());
    const size_t equals = rest.find(" = ");
    const CLI::Option* option = command.get_option_no_throw(rest.substr(0, equals));
    if (equals == std::string::npos || option == nullptr) return message;
    const bool is_flag = option->get_items_expected_max() == 0;
    message = fmt::format("{}: is {}, expected {}", rest.substr(0, equals), quote(rest.substr(equals + 3)),
                          is_flag ? "true or false" : "a number");
  }
  constexpr std::string_view kUnexpected = "The following argument";
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
  if (failure.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    app.exit(failure);
    return write_out("") && std::ferror(stdout) == 0 ? kDone : fail_output();
  }
  const CLI::App* at = &app;
  if (!app.get_subcommands().empty()) at = app.get_subcommands().front();
  std::string message = clearer(failure.what(), *at);
  for (char& c : message) c = c == '\n' ? ' ' : c;
  const std::string command = at == &app ? "halfbyte" : "halfbyte " + at->get_name();
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
}

int run_main(int argc, char** argv) {
  occupy_standard_streams();
  CLI::App app{"Runs reasoning language models in 4-bit floating point.", "halfbyte"};
  app.set_version_flag("--version", version_text);
  app.require_subcommand(1);
  app.footer(
      "Every flag can be set in the environment: --max-tokens is HALFBYTE_MAX_TOKENS; the command line wins.\n"
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
  std::vector<std::pair<CLI::App*, Command>> commands;
  for (const Entry& entry : kCommands) {
    CLI::App* command = app.add_subcommand(entry.name, entry.help);
    commands.emplace_back(command, entry.add(*command));
  }
  std::string known;
  for (const Entry& entry : kCommands) known += (known.empty() ? "" : ", ") + std::string(entry.name);
  if (argc < 2) return fail(fmt::format("no command was named; the commands are {}; see halfbyte --help", known));
  const auto is_argument = [&](const Entry& entry) { return argc > 1 && std::string_view(entry.name) == argv[1]; };
  if (argc > 1 && argv[1][0] != '-' && std::none_of(std::begin(kCommands), std::end(kCommands), is_argument)) {
    return fail(fmt::format("there is no command {}; the commands are {}; see halfbyte --help", quote(argv[1]), known));
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
  for (const auto& [command, run] : commands) {
    if (command->parsed()) return run();
  }
  return kBadInput;
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
