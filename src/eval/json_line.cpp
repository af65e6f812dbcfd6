#include "eval/json_line.h"

#include <fmt/format.h>

namespace halfbyte {

std::string line_name(const std::string& file, int64_t line) {
  return fmt::format("{}, line {}", file, line);
}

Result<std::unique_ptr<JsonDocument>> parse_json_line(std::string_view text, const std::string& file, int64_t line) {
  const std::string name = line_name(file, line);
  auto document = JsonDocument::parse(text, name);
  if (document.ok()) return document;
  // The text has one line, so the document's count of them says nothing.
  const std::string before = name + ": line 1, ";
  const Status status = document.status();
  const std::string& message = status.message();
  if (!message.starts_with(before)) return document;
  return Status(status.code(), name + ", " + message.substr(before.size()));
}

}  // namespace halfbyte
