#include "text/pretokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "text/unicode_classes.h"

namespace halfbyte {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Result<std::vector<std::string>> pieces_of(const Splitter& splitter, std::string_view text) {
  std::vector<Piece> pieces;
  if (!text.empty()) HB_TRY(splitter.split(text, {0, static_cast<uint32_t>(text.size())}, pieces));
  std::vector<std::string> out;
  for (const Piece& piece : pieces) out.emplace_back(text.substr(piece.begin, piece.end - piece.begin));
  return out;
}

std::vector<std::string> split(const Splitter& splitter, std::string_view text) {
  auto pieces = pieces_of(splitter, text);
  EXPECT_TRUE(pieces.ok()) << pieces.status().message();
  return pieces.ok() ? std::move(pieces).value() : std::vector<std::string>();
}

std::unique_ptr<Splitter> regex(std::string_view pattern, const RegexSplitOptions& options = {}) {
  auto splitter = make_regex_splitter(pattern, options);
  EXPECT_TRUE(splitter.ok()) << splitter.status().message();
  return splitter.ok() ? std::move(splitter).value() : nullptr;
}

TEST(Gpt2Splitter, Examples) {
  const auto gpt2 = make_gpt2_splitter();
  EXPECT_THAT(split(*gpt2, "Hello world's 123!"), ElementsAre("Hello", " world", "'s", " 123", "!"));
  EXPECT_THAT(split(*gpt2, "a  b"), ElementsAre("a", " ", " b"));
  EXPECT_THAT(split(*gpt2, "a\n\n b"), ElementsAre("a", "\n\n", " b"));
  EXPECT_THAT(split(*gpt2, "end  "), ElementsAre("end", "  "));
  EXPECT_THAT(split(*gpt2, "\t\tx"), ElementsAre("\t", "\t", "x"));
  EXPECT_THAT(split(*gpt2, "DON'T don't 'll"), ElementsAre("DON", "'", "T", " don", "'t", " '", "ll"));
}

TEST(Qwen2Splitter, Examples) {
  const auto qwen2 = make_qwen2_splitter();
  EXPECT_THAT(split(*qwen2, "Hello world's 123!"), ElementsAre("Hello", " world", "'s", " ", "1", "2", "3", "!"));
  EXPECT_THAT(split(*qwen2, "DON'T $x (y)\n\n z"), ElementsAre("DON", "'T", " $", "x", " (", "y", ")\n\n", " z"));
  EXPECT_THAT(split(*qwen2, " \n \n  x"), ElementsAre(" \n \n", " ", " x"));
  EXPECT_THAT(split(*qwen2, "\tx\u00a0y"), ElementsAre("\tx", "\u00a0y"));
  EXPECT_THAT(split(*qwen2, "a'\u017f"), ElementsAre("a", "'\u017f"));
}

TEST(Llama3Splitter, GroupsDigitsByThree) {
  EXPECT_THAT(split(*make_llama3_splitter(), "1234567 x"), ElementsAre("123", "456", "7", " x"));
}

TEST(Qwen35Splitter, MarksBelongToWords) {
  const std::string word = "\u0928\u093f\u092e";  // Devanagari with a vowel sign, a mark
  EXPECT_THAT(split(*make_qwen35_splitter(), word + " x"), ElementsAre(word, " x"));
  EXPECT_EQ(split(*make_qwen2_splitter(), word).size(), 2u);
}

TEST(DigitsSplitter, OneByOneOrInRuns) {
  EXPECT_THAT(split(*make_digits_splitter(/*individual=*/true), "ab12\u00bdc"),
              ElementsAre("ab", "1", "2", "\u00bd", "c"));
  EXPECT_THAT(split(*make_digits_splitter(/*individual=*/false), "ab12c3"), ElementsAre("ab", "12", "c", "3"));
}

TEST(KnownRegexSplitter, NamesTheScanner) {
  const std::pair<const char*, const char*> known[] = {
      {kGpt2, "gpt-2"}, {kQwen2, "qwen2"}, {kLlama3, "llama-bpe"}, {kQwen35, "qwen35"}};
  for (const auto& [pattern, name] : known) {
    const auto splitter = known_regex_splitter(pattern);
    ASSERT_NE(splitter, nullptr) << name;
    EXPECT_EQ(splitter->name(), name);
  }
  EXPECT_EQ(known_regex_splitter(R"(\p{L}+)"), nullptr);
}

// Code points whose class PCRE2, with its own Unicode version, sees as we do.
bool same_class_in_pcre2(char32_t c) {
  static const auto letters = regex(R"(\p{L})"), marks = regex(R"(\p{M})"), numbers = regex(R"(\p{N})");
  const CharClass ours = UnicodeClasses::get().of(c);
  std::string text = "\n";  // in none of the classes
  append_utf8(text, c);
  const auto in = [&](const Splitter& one) { return split(one, text).size() == 2 && c != '\n'; };
  return in(*letters) == (ours == CharClass::kLetter) && in(*marks) == (ours == CharClass::kMark) &&
         in(*numbers) == (ours == CharClass::kNumber);
}

std::vector<char32_t> test_alphabet(std::mt19937& random) {
  std::vector<char32_t> alphabet = {U' ',   U'\t',   U'\n',   U'\r', 0x85,   0xA0,   0x3000,   0x2028, 0x180E,
                                    0x200B, 0x200D,  0,       U'\'', U's',   U'S',   0x17F,    U't',   U'r',
                                    U'e',   U'v',    U'm',    U'l',  U'L',   U'd',   U'x',     U'0',   U'7',
                                    0xBD,   0x2160,  0x0663,  U'.',  U'-',   U'<',   0x301,    0x93F,  0x20DD,
                                    0x4E2D, 0x1F600, 0x1F3FD, 0xE9,  0xFE0F, 0xAC00, 0x10FFFF, 0x1D7CE};
  while (alphabet.size() < 400) {
    const auto c = static_cast<char32_t>(random() % (random() % 4 == 0 ? 0x110000 : 0x3000));
    if ((c < 0xD800 || c > 0xDFFF) && same_class_in_pcre2(c)) alphabet.push_back(c);
  }
  return alphabet;
}

// The hand-written scanners against the regular expressions that they stand for.
TEST(Scanners, CutAsTheirRegularExpressionsDo) {
  std::mt19937 random(4);
  const std::vector<char32_t> alphabet = test_alphabet(random);
  const std::pair<std::unique_ptr<Splitter>, const char*> pairs[] = {{make_gpt2_splitter(), kGpt2},
                                                                     {make_qwen2_splitter(), kQwen2},
                                                                     {make_llama3_splitter(), kLlama3},
                                                                     {make_qwen35_splitter(), kQwen35}};
  for (const auto& [scanner, pattern] : pairs) {
    const auto expression = regex(pattern);
    ASSERT_THAT(expression->name(), HasSubstr("regex("));  // not the scanner again
    for (int round = 0; round < 8000; ++round) {
      std::string text;
      // Few different characters in a text make the rules meet.
      const size_t first = random() % alphabet.size(), few = 1 + random() % 30;
      for (size_t n = random() % 30; n > 0; --n) {
        const size_t pick = random() % 3 == 0 ? random() % 44 : (first + random() % few) % alphabet.size();
        append_utf8(text, alphabet[pick]);
      }
      ASSERT_EQ(split(*scanner, text), split(*expression, text)) << scanner->name() << ": " << text;
    }
  }
}

TEST(UnicodeClasses, KnownCharacters) {
  const UnicodeClasses& classes = UnicodeClasses::get();
  EXPECT_EQ(classes.of('a'), CharClass::kLetter);
  EXPECT_EQ(classes.of(0x4E2D), CharClass::kLetter);
  EXPECT_EQ(classes.of(0x301), CharClass::kMark);
  EXPECT_EQ(classes.of(0xBD), CharClass::kNumber);
  EXPECT_EQ(classes.of(0x3000), CharClass::kSpace);
  EXPECT_EQ(classes.of(0x200B), CharClass::kOther);
  EXPECT_EQ(classes.of(0x1C), CharClass::kOther);  // a separator to some, no white space to Unicode
  EXPECT_EQ(classes.of(0x1C89), CharClass::kLetter) << "new in Unicode 16.0";
  EXPECT_EQ(classes.of(0x11DE0), CharClass::kOther) << "a number of Unicode 17";
  EXPECT_EQ(classes.of(0x10FFFF), CharClass::kOther);
  EXPECT_TRUE(classes.is_word('_'));
  EXPECT_TRUE(classes.is_word(0x200D));
  EXPECT_FALSE(classes.is_word('-'));
  EXPECT_FALSE(classes.is_word(0xBD));
}

TEST(RegexSplitter, KeepsOrRemoves) {
  EXPECT_THAT(split(*regex("b+"), "abbcb"), ElementsAre("a", "bb", "c", "b"));
  EXPECT_THAT(split(*regex("b+", {.literal = false, .remove_matches = true, .invert = false}), "abbcb"),
              ElementsAre("a", "c"));
  EXPECT_THAT(split(*regex("b+", {.literal = false, .remove_matches = true, .invert = true}), "abbcb"),
              ElementsAre("bb", "b"));
  EXPECT_THAT(split(*regex("b+", {.literal = true, .remove_matches = false, .invert = false}), "ab+b"),
              ElementsAre("a", "b+", "b"));
  EXPECT_THAT(split(*regex("x*"), "axb"), ElementsAre("a", "x", "b"));
  EXPECT_THAT(split(*regex("q"), "none"), ElementsAre("none"));
}

TEST(RegexSplitter, ReadsClassesAsOniguruma) {
  EXPECT_THAT(split(*regex(R"(\s)"), "a\u180eb\u2003c"), ElementsAre("a\u180eb", "\u2003", "c"));
  EXPECT_THAT(split(*regex(R"([\s\w]+)"), "a_\u0301-b"), ElementsAre("a_\u0301", "-", "b"));
  EXPECT_THAT(split(*regex(R"(\W)"), "a-\u00b2"), ElementsAre("a", "-", "\u00b2"));
  EXPECT_THAT(split(*regex(R"(\h+)"), "xfF0g"), ElementsAre("x", "fF0", "g"));
}

TEST(RegexSplitter, RefusesByNameWhatTheEnginesReadDifferently) {
  const std::pair<const char*, const char*> cases[] = {{R"([a-z&&[^b]])", "&& inside a class"},
                                                       {R"([[:alpha:]])", "a class inside a class"},
                                                       {R"(a{1,2}+)", "+ after a counted"},
                                                       {R"(\bword)", R"(\b)"},
                                                       {R"([\W])", R"(\W inside a class)"},
                                                       {"(", "PCRE2 cannot read"},
                                                       {R"(\p{Bogus})", "PCRE2 cannot read"},
                                                       {"a\\", "backslash at the end"},
                                                       {"", "empty"}};
  for (const auto& [pattern, reason] : cases) {
    const auto splitter = make_regex_splitter(pattern, {});
    ASSERT_FALSE(splitter.ok()) << pattern;
    EXPECT_THAT(splitter.status().message(), HasSubstr(reason)) << pattern;
  }
  EXPECT_NE(regex(R"(\p{L}+)"), nullptr) << "a possessive-looking + behind a property is an ordinary one";
  EXPECT_FALSE(make_regex_splitter(std::string(100'000, 'a'), {}).ok());
}

TEST(RegexSplitter, GivesUpWithAnErrorInsteadOfHanging) {
  const auto evil = regex("(?:a+)+[bc]");
  const auto pieces = pieces_of(*evil, std::string(60, 'a'));
  ASSERT_FALSE(pieces.ok());
  EXPECT_EQ(pieces.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(pieces.status().message(), HasSubstr("gave up at byte 0"));
}

TEST(Pretokenizer, StagesCutThePiecesOfTheStageBefore) {
  Pretokenizer none;
  EXPECT_EQ(none.name(), "none");
  Pretokenizer smollm;
  smollm.add(make_digits_splitter(/*individual=*/true));
  smollm.add(make_gpt2_splitter());
  EXPECT_EQ(smollm.name(), "digits + gpt-2");
  const std::string_view text = "ied 4 ";
  std::vector<Piece> scratch, pieces;
  ASSERT_TRUE(smollm.split(text, scratch, pieces).ok());
  EXPECT_THAT(pieces, ElementsAre(Piece{0, 3}, Piece{3, 4}, Piece{4, 5}, Piece{5, 6}));
  ASSERT_TRUE(none.split(text, scratch, pieces).ok());
  EXPECT_THAT(pieces, ElementsAre(Piece{0, 6}));
  ASSERT_TRUE(smollm.split("", scratch, pieces).ok());
  EXPECT_TRUE(pieces.empty());
}

}  // namespace
}  // namespace halfbyte
