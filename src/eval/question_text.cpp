#include "eval/question_text.h"

namespace halfbyte {

Status read_question_text(const JsonValue& root, std::string_view key, std::string& out) {
  HB_ASSIGN(const JsonValue value, root.at(key));
  HB_ASSIGN(const std::string_view text, value.as_string());
  if (text.empty()) return value.error("is empty");
  out = std::string(text);
  return {};
}

}  // namespace halfbyte
