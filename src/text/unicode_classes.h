// The classes of characters that pre-tokenisers and added tokens ask for. Unicode 16.0; see
// scripts/generate_unicode_classes.py for why that version.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace halfbyte {

// The first letter of the general category, with White_Space (\s) taken out. In this order in the generated data.
enum class CharClass : uint8_t { kOther, kLetter, kMark, kNumber, kSpace };

// Thread-safe: made once, then constant.
class UnicodeClasses {
 public:
  static const UnicodeClasses& get();

  CharClass of(uint32_t code_point) const { return static_cast<CharClass>(props(code_point) & 7); }
  // \w: letters, marks, decimal digits, connectors (what the Rust regex engine says).
  bool is_word(uint32_t code_point) const { return (props(code_point) & 8) != 0; }
  CharClass of_ascii(unsigned char byte) const { return ascii_[byte]; }

 private:
  UnicodeClasses();
  uint8_t props(uint32_t c) const { return pages_[page_of_[c >> 8]][c & 255]; }

  using Page = std::array<uint8_t, 256>;
  std::array<uint8_t, 0x1100> page_of_;  // by code point / 256
  std::vector<Page> pages_;              // equal pages are stored once
  std::array<CharClass, 128> ascii_;
};

}  // namespace halfbyte
