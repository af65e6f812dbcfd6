#include "base/quote.h"

#include <charconv>

#include "base/utf8.h"

namespace halfbyte {
namespace {

void append_escaped_byte(std::string& out, uint8_t b) {
  constexpr char kHex[] = "0123456789abcdef";
  out += {'\\', 'x', kHex[b >> 4], kHex[b & 15]};
}

template <class Number>
std::string shortest(Number number) {
  char buffer[32];
  return std::string(buffer, std::to_chars(buffer, buffer + sizeof buffer, number).ptr);
}

}  // namespace

std::string number_text(double number) {
  return shortest(number);
}
std::string number_text(float number) {
  return shortest(number);
}

double as_typed(float number) {
  const std::string text = number_text(number);
  double typed = 0;
  std::from_chars(text.data(), text.data() + text.size(), typed);
  return typed;
}

std::string quote(std::string_view text, size_t max_bytes) {
  std::string out = "'";
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = next_code_point(text, at);
    if (at + c.length > max_bytes) break;
    // C1 controls and the two Unicode line ends would also break a line or drive a terminal.
    const bool control = c.code_point < 0x20 || (c.code_point >= 0x7F && c.code_point < 0xA0) ||
                         c.code_point == 0x2028 || c.code_point == 0x2029;
    if (c.code_point == '\n') {
      out += "\\n";
    } else if (c.code_point == '\t') {
      out += "\\t";
    } else if (!c.valid || control) {
      for (size_t i = 0; i < c.length; ++i) append_escaped_byte(out, static_cast<uint8_t>(text[at + i]));
    } else {
      out.append(text, at, c.length);
    }
    at += c.length;
  }
  out += at < text.size() ? "...'" : "'";
  return out;
}

}  // namespace halfbyte
