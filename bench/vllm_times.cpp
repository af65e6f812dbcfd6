#include "vllm_times.h"

#include <sys/wait.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace halfbyte {
namespace {

// For the shell.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

Result<std::vector<VllmTime>> vllm_times(const std::string& python, const std::vector<std::pair<int, int>>& shapes,
                                         const std::vector<int>& tokens, int rounds, int calls) {
  std::string command = quoted(python) + " " + quoted(HALFBYTE_SOURCE_DIR "/bench/vllm_linears.py") + " --rounds " +
                        std::to_string(rounds) + " --calls " + std::to_string(calls) + " --tokens";
  for (const int m : tokens) command += " " + std::to_string(m);
  command += " --shapes";
  for (const auto& [n, k] : shapes) command += " " + std::to_string(n) + "x" + std::to_string(k);
  std::FILE* pipe = popen(command.c_str(), "r");  // its errors go to ours
  if (pipe == nullptr) return internal_error("no shell to run " + python);
  std::string text;
  char part[4096];
  for (size_t got; (got = std::fread(part, 1, sizeof(part), pipe)) > 0;) text.append(part, got);
  const int status = pclose(pipe);
  if (status != 0)
    return not_found("--vllm " + python + " ended with code " +
                     std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1) +
                     "; expected a Python that imports vllm (what it said stands above)");
  const auto lines = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!lines.is_array()) return invalid_data("--vllm " + python + " gave no times");
  std::vector<VllmTime> out;
  for (const auto& l : lines)
    out.push_back({l.at("kernel").get<std::string>(), l.at("n").get<int>(), l.at("k").get<int>(), l.at("m").get<int>(),
                   l.at("us").get<double>()});
  return out;
}

}  // namespace halfbyte
