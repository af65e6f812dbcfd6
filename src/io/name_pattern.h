// Patterns on module names, as checkpoints' lists spell them.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace halfbyte {

// Python's fnmatch: * ? [abc] [!abc], the whole text. Time is bounded by text * pattern.
bool fnmatch(std::string_view text, std::string_view pattern);

// A regular expression of compressed-tensors or Quark ("re:.*mlp.*"), matched as Python's re.match does: from the start
// of the name, not to its end. Steps are bounded: an expression that would need more does not match. Thread-safe.
class NameRegex {
 public:
  // `source` without "re:". kInvalidData: broken or too long; the message says why.
  static Result<std::shared_ptr<const NameRegex>> compile(std::string_view source);
  bool matches(std::string_view name) const;

 private:
  struct Code;
  std::shared_ptr<const Code> code_;
};

// One entry of a list. Thread-safe.
struct NamePattern {
  std::string text;                        // as written
  std::shared_ptr<const NameRegex> regex;  // of "re:..."; else null

  // "re:..." is compiled, everything else is kept as it is.
  static Result<NamePattern> parse(std::string_view text);
  bool operator==(const NamePattern& other) const { return text == other.text; }
  bool operator<(const NamePattern& other) const { return text < other.text; }
};

}  // namespace halfbyte
