#include "base/utf8.h"

#include <gtest/gtest.h>

namespace halfbyte {
namespace {

TEST(Utf8, EveryCodePointRoundTrips) {
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c == 0xD800) c = 0xE000;
    std::string s;
    append_utf8(s, c);
    const Utf8Char back = next_code_point(s, 0);
    ASSERT_TRUE(back.valid) << static_cast<uint32_t>(c);
    ASSERT_EQ(back.code_point, c);
    ASSERT_EQ(back.length, s.size());
    ASSERT_FALSE(find_invalid_utf8(s).has_value());
    for (size_t n = 1; n < s.size(); ++n) {
      ASSERT_EQ(incomplete_utf8_suffix(s.substr(0, n)), n);
      ASSERT_EQ(find_invalid_utf8(s.substr(0, n)), 0u);
    }
    ASSERT_EQ(incomplete_utf8_suffix(s), 0u);
  }
}

// Every sequence of two bytes and every lead with three: valid exactly when it is the encoding of its own decoding.
TEST(Utf8, OnlyCanonicalEncodingsAreValid) {
  for (int a = 0; a < 256; ++a) {
    for (int b = 0; b < 256; ++b) {
      for (int c : {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xFF}) {
        const std::string s{static_cast<char>(a), static_cast<char>(b), static_cast<char>(c), '\x80'};
        const Utf8Char got = next_code_point(s, 0);
        ASSERT_GE(got.length, 1);
        ASSERT_LE(got.length, 4);
        std::string again;
        append_utf8(again, got.code_point);
        if (got.valid) {
          ASSERT_EQ(again, s.substr(0, got.length));
        } else {
          ASSERT_EQ(got.code_point, 0xFFFDu);
          ASSERT_LT(got.length, 4);
        }
      }
    }
  }
}

TEST(Utf8, RefusesSurrogatesAndOverlongForms) {
  for (std::string_view bad :
       {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xED\xBF\xBF", "\xF0\x80\x80\x80",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80", "\xFF"}) {
    EXPECT_EQ(find_invalid_utf8(bad), 0u);
  }
}

// Unicode 15, section 3.9, table 3-8: how many bytes one replacement character stands for.
TEST(Utf8, BrokenSequencesSpanTheirMaximalParts) {
  const std::string_view s = "\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64";
  std::vector<std::pair<size_t, bool>> got;
  for (size_t at = 0; at < s.size();) {
    const Utf8Char c = next_code_point(s, at);
    got.emplace_back(c.length, c.valid);
    at += c.length;
  }
  const std::vector<std::pair<size_t, bool>> expected = {{1, true},  {3, false}, {2, false}, {1, false}, {1, true},
                                                         {1, false}, {1, true},  {1, false}, {1, false}, {1, true}};
  EXPECT_EQ(got, expected);
}

TEST(Utf8, FindsTheOffsetBehindLongAscii) {
  for (size_t n = 0; n < 40; ++n) {
    std::string s(n, 'a');
    EXPECT_FALSE(find_invalid_utf8(s).has_value());
    s += "\xC3\xA9";
    s += std::string(20, 'b');
    EXPECT_FALSE(find_invalid_utf8(s).has_value());
    s += '\xFF';
    EXPECT_EQ(find_invalid_utf8(s), n + 22);
  }
}

TEST(Utf8, EndAndOutOfRange) {
  EXPECT_EQ(next_code_point("", 0).length, 0);
  EXPECT_EQ(next_code_point("ab", 2).length, 0);
  std::string s;
  append_utf8(s, 0xD800);
  append_utf8(s, 0x110000);
  EXPECT_EQ(s, "\xEF\xBF\xBD\xEF\xBF\xBD");
}

TEST(Utf8, IncompleteSuffix) {
  EXPECT_EQ(incomplete_utf8_suffix(""), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("abc"), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("abc\xE2\x82"), 2u);
  EXPECT_EQ(incomplete_utf8_suffix("abc\xF0\x9F\x98"), 3u);
  EXPECT_EQ(incomplete_utf8_suffix("abc\xF0\x80"), 0u) << "overlong: no byte can complete it";
  EXPECT_EQ(incomplete_utf8_suffix("\x80\x80\x80"), 0u);
  EXPECT_EQ(incomplete_utf8_suffix("\xC3\xA9\xC3"), 1u);
}

}  // namespace
}  // namespace halfbyte
