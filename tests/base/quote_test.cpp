#include "base/quote.h"

#include <gtest/gtest.h>

#include "base/utf8.h"

namespace halfbyte {
namespace {

TEST(Quote, PlainTextAndEscapes) {
  EXPECT_EQ(quote("abc"), "'abc'");
  EXPECT_EQ(quote(""), "''");
  EXPECT_EQ(quote("caf\xC3\xA9"), "'caf\xC3\xA9'");
  EXPECT_EQ(quote("a\nb\tc\r\x1b[0m\x7f"), "'a\\nb\\tc\\x0d\\x1b[0m\\x7f'");
  EXPECT_EQ(quote("\xE2\x80\xA8"), "'\\xe2\\x80\\xa8'");
  EXPECT_EQ(quote(std::string_view("\0", 1)), "'\\x00'");
}

TEST(Quote, EveryByteGivesValidPrintableText) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      const std::string q = quote(std::string{static_cast<char>(a), static_cast<char>(b)});
      ASSERT_FALSE(find_invalid_utf8(q).has_value());
      for (char c : q) ASSERT_FALSE(static_cast<uint8_t>(c) < 0x20);
    }
  }
}

TEST(Quote, FloatsAsTyped) {
  EXPECT_EQ(as_typed(0.6f), 0.6);
  EXPECT_EQ(as_typed(0.1f), 0.1);
  EXPECT_EQ(as_typed(1e-30f), 1e-30);
  for (float number = 1e-3f; number < 10; number *= 1.37f) EXPECT_EQ(static_cast<float>(as_typed(number)), number);
}

TEST(Quote, CutsBetweenCharacters) {
  EXPECT_EQ(quote("abcdef", 3), "'abc...'");
  EXPECT_EQ(quote("abc", 3), "'abc'");
  EXPECT_EQ(quote("ab\xC3\xA9", 3), "'ab...'");
}

}  // namespace
}  // namespace halfbyte
