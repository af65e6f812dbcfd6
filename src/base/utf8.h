// UTF-8: checking, decoding and encoding one character at a time. Strict: no surrogates, no overlong forms, nothing
// above U+10FFFF (Unicode 15, table 3-7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace halfbyte {

// One character read from text. length is the bytes it takes, 1 to 4; 0 at the end of the text. A broken sequence has
// valid = false and spans the bytes that a replacement character stands for (the longest part of a well-formed one, at
// least 1), as browsers and Python's errors="replace" count them.
struct Utf8Char {
  char32_t code_point = 0xFFFD;
  uint8_t length = 0;
  bool valid = false;
};

namespace utf8_internal {

struct Lead {
  uint8_t length;     // of the whole sequence; 0: no sequence starts with this byte
  uint8_t low, high;  // of the second byte
};

constexpr Lead lead(uint8_t b) {
  if (b < 0x80) return {1, 0, 0};
  if (b < 0xC2) return {0, 0, 0};
  if (b < 0xE0) return {2, 0x80, 0xBF};
  if (b < 0xF0) return {3, uint8_t(b == 0xE0 ? 0xA0 : 0x80), uint8_t(b == 0xED ? 0x9F : 0xBF)};
  if (b < 0xF5) return {4, uint8_t(b == 0xF0 ? 0x90 : 0x80), uint8_t(b == 0xF4 ? 0x8F : 0xBF)};
  return {0, 0, 0};
}

}  // namespace utf8_internal

// The character at text[at]. at <= text.size().
constexpr Utf8Char next_code_point(std::string_view text, size_t at) {
  if (at >= text.size()) return {};
  const auto first = static_cast<uint8_t>(text[at]);
  const utf8_internal::Lead lead = utf8_internal::lead(first);
  if (lead.length == 0) return {0xFFFD, 1, false};
  if (lead.length == 1) return {first, 1, true};
  char32_t code = first & (0x7Fu >> lead.length);
  uint8_t low = lead.low, high = lead.high;
  for (uint8_t i = 1; i < lead.length; ++i) {
    const uint8_t b = at + i < text.size() ? static_cast<uint8_t>(text[at + i]) : uint8_t{0};
    if (b < low || b > high) return {0xFFFD, i, false};
    code = code << 6 | (b & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {code, lead.length, true};
}

// The offset of the first byte that is not part of valid UTF-8, or nothing when all is valid.
std::optional<size_t> find_invalid_utf8(std::string_view text);

// How many bytes at the end of `text` are the start of a character that more bytes could complete: 0 to 3. A stream
// holds these back.
size_t incomplete_utf8_suffix(std::string_view text);

// Appends the character; a surrogate or a value above U+10FFFF appends U+FFFD.
void append_utf8(std::string& out, char32_t code_point);

}  // namespace halfbyte
