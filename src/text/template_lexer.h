// The tokens of a template, with Jinja's white space rules applied (trim_blocks and lstrip_blocks on, as transformers
// sets them; '-' and '+' signs; one trailing newline dropped).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

enum class TokenKind : uint8_t {
  kData,
  kVariableBegin,
  kVariableEnd,
  kBlockBegin,
  kBlockEnd,
  kName,
  kString,
  kInt,
  kFloat,
  kOperator,
  kEnd,
};

struct TemplateToken {
  TokenKind kind = TokenKind::kEnd;
  uint32_t begin = 0;  // bytes [begin, end) of the source; a string with its quotes
  uint32_t end = 0;
};

// The source with its newlines made "\n", and what is needed to say where something stands.
class TemplateSource {
 public:
  TemplateSource(std::string_view source, std::string name);
  std::string_view text() const { return text_; }
  std::string_view text(const TemplateToken& t) const {
    return std::string_view(text_).substr(t.begin, t.end - t.begin);
  }
  // "name: 3:14", both from 1, columns in characters.
  std::string where(uint32_t offset) const;
  Status error(uint32_t offset, const std::string& message) const {
    return invalid_data(where(offset) + ": " + message);
  }

 private:
  std::string text_, name_;
  std::vector<uint32_t> line_starts_;
};

Result<std::vector<TemplateToken>> lex_template(const TemplateSource& source);
// The value of a string token: Python's escapes resolved.
Result<std::string> unescape_string(const TemplateSource& source, const TemplateToken& token);

}  // namespace halfbyte
