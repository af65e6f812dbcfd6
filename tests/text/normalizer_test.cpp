#include "text/normalizer.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>

#include "base/utf8.h"

namespace halfbyte {
namespace {

std::string nfc(std::string_view text) {
  std::string out;
  append_nfc(text, out);
  return out;
}

// utf8proc's own NFC: right, but quadratic in runs of marks.
std::string reference_nfc(const std::string& text) {
  utf8proc_uint8_t* result = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const auto length = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                   static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  EXPECT_GE(length, 0);
  std::string out(reinterpret_cast<const char*>(result), static_cast<size_t>(length));
  std::free(result);
  return out;
}

TEST(Nfc, KnownForms) {
  EXPECT_EQ(nfc(""), "");
  EXPECT_EQ(nfc("plain"), "plain");
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfc("xe\u0301y"), "x\u00e9y");
  EXPECT_EQ(nfc("a\u0301\u0323"), "\u1ea1\u0301");  // reordered, then composed
  EXPECT_EQ(nfc("\u1112\u1161\u11ab"), "\ud55c");   // Hangul
  EXPECT_EQ(nfc("\u212b"), "\u00c5");               // the Angstrom sign becomes a letter
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");         // excluded from composition: taken apart
  EXPECT_EQ(nfc("\u0915\u093c"), "\u0915\u093c");
  EXPECT_EQ(nfc("\ufb01"), "\ufb01");  // a ligature is compatible, not canonical
  EXPECT_EQ(nfc("\u0301a"), "\u0301a");
}

TEST(Nfc, QuickCheckKnowsNormalText) {
  EXPECT_TRUE(is_surely_nfc("plain \u00e9 \u4e2d\ud55c \U0001f600 \u0440\u0443\u0441"));
  EXPECT_FALSE(is_surely_nfc("e\u0301"));
  EXPECT_FALSE(is_surely_nfc("\u212b"));
  EXPECT_FALSE(is_surely_nfc("\u1161"));
}

TEST(Nfc, EveryCharacterAlone) {
  for (char32_t c = 1; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text = "a";
    append_utf8(text, c);
    ASSERT_EQ(nfc(text), reference_nfc(text)) << "U+" << std::hex << static_cast<uint32_t>(c);
    ASSERT_TRUE(!is_surely_nfc(text) || reference_nfc(text) == text) << "U+" << std::hex << static_cast<uint32_t>(c);
  }
}

TEST(Nfc, RandomTextAgreesWithUtf8proc) {
  std::mt19937 random(5);
  const char32_t marked[] = {U'a',   U'e',   U' ',   0x301,  0x300,  0x323,   0x327,  0x345, 0x334,
                             0x3099, 0x304B, 0x1100, 0x1161, 0x11A8, 0xAC00,  0x9C7,  0x9BE, 0x1D15E,
                             0xF900, 0x2126, 0x958,  0xFB1D, 0x1EAD, 0x110A5, 0x110BA};
  for (int round = 0; round < 30000; ++round) {
    std::string text;
    for (size_t n = random() % 14; n > 0; --n) {
      char32_t c = marked[random() % std::size(marked)];
      if (random() % 5 == 0) c = static_cast<char32_t>(0x250 + random() % 0x3000);
      append_utf8(text, c);
    }
    ASSERT_EQ(nfc(text), reference_nfc(text)) << text;
  }
}

// 600,000 marks in the worst order: ordering them by swapping neighbours, as utf8proc does, would take hours.
TEST(Nfc, LongRunsOfMarksAreOrdered) {
  std::string text = "a", expected = "\u1ea1";  // a with dot below takes the first dot
  constexpr int kPairs = 300'000;
  for (int i = 0; i < kPairs; ++i) text += "\u0301\u0323";
  for (int i = 1; i < kPairs; ++i) expected += "\u0323";
  for (int i = 0; i < kPairs; ++i) expected += "\u0301";
  EXPECT_EQ(nfc(text), expected);
}

}  // namespace
}  // namespace halfbyte
