// Walking over UTF-8 that is known to be valid, without checks; base/utf8.h has the checked forms.
#pragma once

#include <cstdint>

namespace halfbyte {

// Decodes the character at `p` and moves `p` behind it.
inline uint32_t utf8_next(const char*& p) {
  const auto byte = [&](int i) { return static_cast<uint32_t>(static_cast<unsigned char>(p[i])); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) {
    p += 1;
    return lead;
  }
  if (lead < 0xE0) {
    const uint32_t c = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    p += 2;
    return c;
  }
  if (lead < 0xF0) {
    const uint32_t c = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    p += 3;
    return c;
  }
  const uint32_t c = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  p += 4;
  return c;
}

// Moves `p`, which points behind a character, to its first byte.
inline void utf8_step_back(const char*& p) {
  do {
    --p;
  } while ((static_cast<unsigned char>(*p) & 0xC0) == 0x80);
}

}  // namespace halfbyte
