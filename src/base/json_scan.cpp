#include "base/json_scan.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <vector>

#include "base/quote.h"
#include "base/utf8.h"

namespace halfbyte {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Whether the digits text[begin, end), with the sign before them, fit int64 or uint64, which is what simdjson reads.
bool fits_64_bits(std::string_view text, size_t begin, size_t end) {
  uint64_t value = 0;
  if (std::from_chars(text.data() + begin, text.data() + end, value).ec != std::errc()) return false;
  return begin == 0 || text[begin - 1] != '-' || value <= uint64_t{1} << 63;
}

// Whether the digits at `begin` are a fraction or an exponent.
bool follows_number(std::string_view text, size_t begin) {
  if (begin > 0 && (text[begin - 1] == '-' || text[begin - 1] == '+')) --begin;
  return begin > 0 && (text[begin - 1] == '.' || text[begin - 1] == 'e' || text[begin - 1] == 'E');
}

// The offset after the string whose opening quote stands at `at`; the text's end if it does not end.
size_t skip_string(std::string_view text, size_t at) {
  for (++at; at < text.size(); ++at) {
    if (text[at] == '"') return at + 1;
    if (text[at] == '\\') ++at;
  }
  return text.size();
}

// Follows JSON's grammar with an explicit stack and stops at the first fault.
class Checker {
 public:
  Checker(std::string_view text, size_t max_depth) : text_(text), max_depth_(max_depth) {}

  // The fault, or nothing.
  std::optional<std::string> run() {
    while (value() && after_value()) {
      if (open_.empty()) {
        if (!at_end()) fail("expected the end of the text");
        break;
      }
    }
    return fault_;
  }

  size_t offset() const { return at_; }

 private:
  bool at_end() const { return at_ >= text_.size(); }
  char peek() const { return at_end() ? '\0' : text_[at_]; }

  bool fail(const std::string& expected) {
    if (fault_) return false;
    const Utf8Char c = next_code_point(text_, at_);
    fault_ = expected + ", found " + (at_end() ? "the end of the text" : quote(text_.substr(at_, c.length)));
    return false;
  }

  void skip_space() {
    while (!at_end() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\n' || text_[at_] == '\r')) ++at_;
  }

  // Reads containers' starts until a scalar or an empty container has been read.
  bool value() {
    while (true) {
      skip_space();
      const char c = peek();
      if (c != '{' && c != '[') return scalar();
      if (open_.size() >= max_depth_) {
        fault_ = "nested deeper than the limit of " + std::to_string(max_depth_);
        return false;
      }
      open_.push_back(c);
      ++at_;
      skip_space();
      if (peek() == (c == '{' ? '}' : ']')) {
        ++at_;
        open_.pop_back();
        return true;
      }
      if (c == '{' && !key()) return false;
    }
  }

  bool key() {
    skip_space();
    if (peek() != '"') return fail("expected a key in double quotes");
    if (!string()) return false;
    skip_space();
    if (peek() != ':') return fail("expected ':'");
    ++at_;
    return true;
  }

  // Closes containers until one goes on (then a value comes next) or none is open.
  bool after_value() {
    while (true) {
      skip_space();
      if (open_.empty()) return true;
      const bool object = open_.back() == '{';
      if (peek() == ',') {
        ++at_;
        return object ? key() : true;
      }
      if (peek() != (object ? '}' : ']')) return fail(object ? "expected ',' or '}'" : "expected ',' or ']'");
      ++at_;
      open_.pop_back();
    }
  }

  bool scalar() {
    const char c = peek();
    if (c == '"') return string();
    if (c == '-' || is_digit(c)) return number();
    for (std::string_view word : {"true", "false", "null"}) {
      if (text_.substr(at_, word.size()) == word) {
        at_ += word.size();
        return true;
      }
    }
    return fail("expected a value");
  }

  bool string() {
    ++at_;
    while (!at_end()) {
      const char c = text_[at_];
      if (c == '"') {
        ++at_;
        return true;
      }
      if (static_cast<uint8_t>(c) < 0x20) return fail("expected no bare control character in a string");
      if (c == '\\') {
        if (!escape()) return false;
        continue;
      }
      const Utf8Char code = next_code_point(text_, at_);
      if (!code.valid) return fail("expected UTF-8");
      at_ += code.length;
    }
    return fail("expected '\"'");
  }

  // The value of four hex digits at `at`, or nothing.
  std::optional<unsigned> hex4(size_t at) const {
    if (at + 4 > text_.size()) return std::nullopt;
    unsigned value = 0;
    for (size_t i = at; i < at + 4; ++i) {
      if (!is_hex(text_[i])) return std::nullopt;
      const char c = text_[i];
      value = value * 16 + static_cast<unsigned>(is_digit(c) ? c - '0' : (c | 0x20) - 'a' + 10);
    }
    return value;
  }

  bool escape() {
    const char kind = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
    if (kind != 'u') {
      if (kind == '\0' || std::string_view("\"\\/bfnrt").find(kind) == std::string_view::npos)
        return fail("expected a known escape in a string");
      at_ += 2;
      return true;
    }
    const std::optional<unsigned> code = hex4(at_ + 2);
    if (!code) return fail("expected four hex digits after \\u");
    const bool high = *code >= 0xD800 && *code < 0xDC00, low = *code >= 0xDC00 && *code < 0xE000;
    const std::optional<unsigned> second = text_.substr(at_ + 6, 2) == "\\u" ? hex4(at_ + 8) : std::nullopt;
    if (low || (high && !(second && *second >= 0xDC00 && *second < 0xE000)))
      return fail("expected a pair of surrogates, found half of one");
    at_ += high ? 12 : 6;
    return true;
  }

  bool digits() {
    if (!is_digit(peek())) return fail("expected a digit");
    while (is_digit(peek())) ++at_;
    return true;
  }

  bool number() {
    const size_t start = at_;
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;
      if (is_digit(peek())) return fail("expected no digit after a leading 0");
    } else if (!digits()) {
      return false;
    }
    if (peek() == '.') {
      ++at_;
      if (!digits()) return false;
    }
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (!digits()) return false;
    }
    const std::string number(text_.substr(start, at_ - start));
    if (std::isinf(std::strtod(number.c_str(), nullptr))) {
      at_ = start;
      fault_ = "the number " + quote(number) + " is beyond the range of a double";
      return false;
    }
    return true;
  }

  std::string_view text_;
  size_t max_depth_;
  size_t at_ = 0;
  std::vector<char> open_;  // '{' or '[' of each container around at_
  std::optional<std::string> fault_;
};

}  // namespace

bool widen_big_integers(std::string_view text, std::string& out) {
  out.clear();
  size_t copied = 0;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      at = skip_string(text, at);
    } else if (is_digit(text[at])) {
      const size_t start = at;
      while (at < text.size() && is_digit(text[at])) ++at;
      const char next = at < text.size() ? text[at] : '\0';
      const bool whole = next != '.' && next != 'e' && next != 'E' && !follows_number(text, start);
      if (whole && !fits_64_bits(text, start, at)) {
        out.append(text, copied, at - copied);
        out += ".0";
        copied = at;
      }
    } else {
      ++at;
    }
  }
  if (copied == 0) return false;
  out.append(text, copied);
  return true;
}

std::string describe_json_error(std::string_view text, size_t max_depth, const std::string& fallback) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) return "the text is empty, expected JSON";
  Checker checker(text, max_depth);
  const std::optional<std::string> fault = checker.run();
  if (!fault) return fallback;
  const std::string_view before = text.substr(0, checker.offset());
  size_t line = 1, line_start = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (before[i] == '\n') {
      ++line;
      line_start = i + 1;
    }
  }
  return "line " + std::to_string(line) + ", column " + std::to_string(before.size() - line_start + 1) + ": " + *fault;
}

}  // namespace halfbyte
