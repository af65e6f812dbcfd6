// Text in pieces: detokeniser, stop strings, reasoning. What matters for each is that no way of cutting the input
// changes the output, so most tests run every cut into two and three pieces, and single bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <random>

#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/output_text.h"
#include "text/reasoning.h"
#include "text/stop_matcher.h"

namespace halfbyte {
namespace {

using Pieces = std::vector<std::string_view>;

// Calls `check` with `text` cut in all ways into one to three pieces (empty ones too) and into single bytes.
void for_each_cut(std::string_view text, const std::function<void(const Pieces&)>& check) {
  for (size_t i = 0; i <= text.size(); ++i) {
    for (size_t j = i; j <= text.size(); ++j) check({text.substr(0, i), text.substr(i, j - i), text.substr(j)});
  }
  Pieces bytes;
  for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
  check(bytes);
}

std::string show(const Pieces& pieces) {
  std::string all;
  for (const std::string_view piece : pieces) all += "[" + std::string(piece) + "]";
  return all;
}

std::string assembled(const Pieces& pieces) {
  Utf8Assembler assembler;
  std::string text;
  for (const std::string_view piece : pieces) {
    assembler.push(piece, text);
    EXPECT_EQ(find_invalid_utf8(text), std::nullopt) << show(pieces);
    EXPECT_LE(assembler.held_bytes(), 3u);
  }
  assembler.flush(text);
  return text;
}

TEST(Utf8Assembler, EveryCutGivesTheSameText) {
  // Expected as bytes.decode(errors="replace") of Python gives it.
  const std::pair<std::string, std::string> cases[] = {
      {"plain", "plain"},
      {"h\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80!", "h\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80!"},
      {"a\xE4\xBD", "a\uFFFD"},    // the end cuts a character
      {"\xF0\x9F\x98", "\uFFFD"},  // one for all three bytes
      {"\xE4\xBD"
       "b",
       "\uFFFD"
       "b"},                                               // broken off
      {"\x80\x80", "\uFFFD\uFFFD"},                        // never a character
      {"\xF0\x80\x80\x80", "\uFFFD\uFFFD\uFFFD\uFFFD"},    // overlong
      {"\xED\xA0\x80", "\uFFFD\uFFFD\uFFFD"},              // a surrogate
      {"\xE4\xE4\xBD\xA0", "\uFFFD\xE4\xBD\xA0"},          // a lead byte breaks off the one before
      {"\xF4\x90\x80\x80x", "\uFFFD\uFFFD\uFFFD\uFFFDx"},  // above U+10FFFF
      {"\xC3\xC3\xA9\xFF\xC0\xAF", "\uFFFD\xC3\xA9\uFFFD\uFFFD\uFFFD"},
      {"\xF1\x80\x80\xE4\xBD", "\uFFFD\uFFFD"},
  };
  for (const auto& [bytes, expected] : cases) {
    for_each_cut(bytes, [&](const Pieces& pieces) { EXPECT_EQ(assembled(pieces), expected) << show(pieces); });
  }
}

TEST(Utf8Assembler, RandomBytesCutAnywhere) {
  std::mt19937 random(1);
  const std::string_view alphabet = "a\x80\xBF\xC3\xA9\xE4\xED\xF0\x9F\xF4\xFF\x90";
  for (int round = 0; round < 3000; ++round) {
    std::string bytes;
    for (size_t n = random() % 12; n > 0; --n) bytes.push_back(alphabet[random() % alphabet.size()]);
    const std::string whole = assembled({bytes});
    EXPECT_EQ(find_invalid_utf8(whole), std::nullopt);
    const size_t i = random() % (bytes.size() + 1);
    const std::string_view view = bytes;
    EXPECT_EQ(assembled({view.substr(0, i), view.substr(i)}), whole);
    Pieces single;
    for (size_t k = 0; k < bytes.size(); ++k) single.push_back(view.substr(k, 1));
    EXPECT_EQ(assembled(single), whole);
  }
}

// What the text ends as, by the definition: the first end of a stop string, the longest of those.
std::string stopped_text(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 0; end <= text.size(); ++end) {
    const std::string_view before = std::string_view(text).substr(0, end);
    size_t longest = 0;
    for (const std::string& stop : stops) {
      if (before.ends_with(stop)) longest = std::max(longest, stop.size());
    }
    if (longest > 0) return text.substr(0, include ? end : end - longest);
  }
  return text;
}

std::string streamed_stops(const Pieces& pieces, const std::shared_ptr<const StopSet>& set, bool include) {
  StopMatcher matcher(set, include);
  std::string text;
  for (const std::string_view piece : pieces) {
    const std::string before = text;
    const bool found = matcher.push(piece, text);
    EXPECT_EQ(found, matcher.found().has_value());
    EXPECT_TRUE(text.starts_with(before)) << "text that was let out was taken back: " << show(pieces);
  }
  matcher.flush(text);
  return text;
}

TEST(StopMatcher, EveryCutGivesTheSameText) {
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"hello STOP rest", {"STOP"}},
      {"aab aaab aaaab", {"aaaab"}},  // a prefix inside itself
      {"one\n\ntwo", {"\n\n"}},
      {"line\nline\n", {"\n\n"}},  // a held newline is not lost
      {"abcd", {"abcX", "b"}},     // inside another's prefix
      {"abcd", {"bcd", "abc"}},    // overlapping: the one that ends first
      {"xabcd", {"bcd", "abcd"}},  // ending together: the longest
      {"User: hi", {"User:", "\nUser:"}},
      {"\xE4\xBD\xA0\xE5\xA5\xBD\xE5\x90\x97", {"\xE5\xA5\xBD"}},
      {"no stop at all", {"zzz"}},
      {"", {"x"}},
      {"ends with STO", {"STOP"}},
      {"</think>ok", {"</s>"}},  // shares a prefix with a tag
      {"anything", {}},
  };
  for (const auto& [text, stops] : cases) {
    const auto set = StopSet::create(stops);
    ASSERT_TRUE(set.ok());
    for (const bool include : {false, true}) {
      const std::string expected = stopped_text(text, stops, include);
      for_each_cut(text, [&](const Pieces& pieces) {
        EXPECT_EQ(streamed_stops(pieces, *set, include), expected) << show(pieces);
      });
    }
  }
}

TEST(StopMatcher, RandomStopsAgreeWithTheDefinition) {
  std::mt19937 random(2);
  const auto word = [&](size_t most) {
    std::string w;
    for (size_t n = 1 + random() % most; n > 0; --n) w.push_back("ab"[random() % 2]);
    return w;
  };
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops;
    for (size_t n = 1 + random() % 4; n > 0; --n) stops.push_back(word(5) + (random() % 2 ? "" : word(3)));
    const std::string text = word(24);
    const auto set = StopSet::create(stops);
    ASSERT_TRUE(set.ok());
    const std::string expected = stopped_text(text, stops, false);
    const size_t i = random() % (text.size() + 1);
    const std::string_view view = text;
    EXPECT_EQ(streamed_stops({view.substr(0, i), view.substr(i)}, *set, false), expected);
    EXPECT_EQ(streamed_stops({text}, *set, false), expected);
  }
}

TEST(StopMatcher, HoldsBackOnlyWhatCouldBecomeAStop) {
  const auto set = StopSet::create({"STOP"});
  ASSERT_TRUE(set.ok());
  StopMatcher matcher(*set, /*include_stop=*/false);
  std::string text;
  EXPECT_FALSE(matcher.push("go S", text));
  EXPECT_EQ(text, "go ");
  EXPECT_EQ(matcher.held(), "S");
  EXPECT_FALSE(matcher.push("o", text));
  EXPECT_EQ(text, "go So");
  EXPECT_TRUE(matcher.push("STOP more", text));
  EXPECT_EQ(text, "go So");
  EXPECT_EQ(matcher.found(), 0u);
  EXPECT_TRUE(matcher.push("never", text));
  matcher.flush(text);
  EXPECT_EQ(text, "go So");
}

TEST(StopSet, RefusesEmptyAndBrokenStrings) {
  EXPECT_EQ(StopSet::create({"a", ""}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(StopSet::create({"\xE4"}).status().code(), StatusCode::kInvalidArgument);
}

struct Split {
  std::string reasoning, answer;
  bool operator==(const Split&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Split& s) {
  return out << "{" << s.reasoning << "|" << s.answer << "}";
}

Split streamed_reasoning(const Pieces& pieces, ReasoningState start) {
  ReasoningSplitter splitter(start);
  Split split;
  for (const std::string_view piece : pieces) splitter.push(piece, split.reasoning, split.answer);
  splitter.flush(split.reasoning, split.answer);
  return split;
}

TEST(ReasoningSplitter, EveryCutGivesTheSameParts) {
  using enum ReasoningState;
  struct Case {
    ReasoningState start;
    std::string text;
    Split expected;
  };
  const Case cases[] = {
      {kBefore, "<think>\nwhy\n</think>\n\nAnswer", {"why\n", "Answer"}},
      {kBefore, "\n <think>x</think>y", {"x", "y"}},
      {kBefore, "No tags", {"", "No tags"}},
      {kBefore, "  spaces stay", {"", "  spaces stay"}},
      {kBefore, "\n\n", {"", "\n\n"}},
      {kBefore, "<thin ice", {"", "<thin ice"}},
      {kBefore, "a <think>is plain</think> here", {"", "a <think>is plain</think> here"}},
      {kBefore, "</think> first", {"", "</think> first"}},
      {kBefore, "<think></think>", {"", ""}},
      {kBefore, "<think>cut off <", {"cut off <", ""}},
      {kBefore, "<thi", {"", "<thi"}},
      {kInsideStart, "\nreason</think>\nanswer", {"reason", "answer"}},
      {kInsideStart, "<think>\nrepeated</think>a", {"repeated", "a"}},  // R1-0528 may emit the tag again
      {kInsideStart, "a <think> b</think>c", {"a <think> b", "c"}},
      {kInsideStart, "never closed", {"never closed", ""}},
      {kInsideStart, "x</think", {"x</think", ""}},
      {kInsideStart, "x<</think></think>y", {"x<", "</think>y"}},
      {kInsideStart, "</think>a", {"", "a"}},
      {kInsideStart, "'\n</think>{\"a\":1}", {"'\n", "{\"a\":1}"}},
      {kAfter, "\nplain <think>", {"", "\nplain <think>"}},
      {kBefore, "", {"", ""}},
  };
  for (const Case& c : cases) {
    for_each_cut(c.text, [&](const Pieces& pieces) {
      EXPECT_EQ(streamed_reasoning(pieces, c.start), c.expected) << show(pieces);
    });
  }
}

TEST(ReasoningSplitter, LetsCertainTextOutAtOnce) {
  ReasoningSplitter splitter(ReasoningState::kInsideStart);
  std::string reasoning, answer;
  splitter.push("thinking </th", reasoning, answer);
  EXPECT_EQ(reasoning, "thinking ");
  splitter.push("is", reasoning, answer);
  EXPECT_EQ(reasoning, "thinking </this");
  EXPECT_TRUE(splitter.inside());
  splitter.push("</think>done", reasoning, answer);
  EXPECT_FALSE(splitter.inside());
  EXPECT_EQ(answer, "done");
}

TEST(ReasoningStart, ComesFromThePromptsEnd) {
  EXPECT_EQ(reasoning_start("<|Assistant|><think>\n"), ReasoningState::kInsideStart);
  EXPECT_EQ(reasoning_start("<|im_start|>assistant\n<think>\n\n</think>\n\n"), ReasoningState::kAfter);
  EXPECT_EQ(reasoning_start("<|im_start|>assistant\n"), ReasoningState::kBefore);
  EXPECT_EQ(reasoning_start("user says <think> in passing<|im_end|>\n<|im_start|>assistant\n"),
            ReasoningState::kBefore);
  EXPECT_EQ(reasoning_start(""), ReasoningState::kBefore);
  EXPECT_EQ(reasoning_start(" \n"), ReasoningState::kBefore);
}

// A vocabulary of the 256 bytes, so that any bytes can be tokens; 256 is special.
std::shared_ptr<const Tokenizer> byte_tokenizer() {
  BpeVocab vocab;
  for (uint32_t b = 0, next = 256; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    std::string text;
    append_utf8(text, printable ? b : next++);
    vocab.tokens.push_back(text);
  }
  vocab.tokens.emplace_back("<|end|>");
  vocab.added.push_back({256, "<|end|>", true});
  vocab.pre = "gpt-2";
  auto tokenizer = Tokenizer::from_vocab(std::move(vocab), "bytes");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

TEST(Detokenizer, SkipsSpecialTokensAndHoldsHalves) {
  const auto tokenizer = byte_tokenizer();
  const int32_t ids[] = {0xE4, 0xBD, 256, 0xA0, 999999, -1, 'x', 0xC3};
  for (const bool skip : {true, false}) {
    Detokenizer detokenizer(tokenizer, skip);
    std::string text;
    for (const int32_t id : ids) detokenizer.push(id, text);
    detokenizer.flush(text);
    EXPECT_EQ(text, skip ? "\xE4\xBD\xA0x\uFFFD" : "\uFFFD<|end|>\uFFFDx\uFFFD");
    EXPECT_EQ(text, detokenize(*tokenizer, ids, skip));
  }
}

TEST(OutputText, TheWholeWayFromTokenToText) {
  const auto tokenizer = byte_tokenizer();
  const auto stops = StopSet::create({"</tool>", "STOP"});
  ASSERT_TRUE(stops.ok());
  OutputTextOptions options;
  options.stops = *stops;
  const std::string bytes = "<think>\n\xE4\xBD\xA0</think>\n\nHi \xF0\x9F\x98\x80 STOP unseen";
  OutputText output(tokenizer, options);
  OutputDelta all;
  int64_t used = 0;
  for (const char c : bytes) {
    ++used;
    if (output.push(static_cast<unsigned char>(c), all)) break;
  }
  output.flush(all);
  EXPECT_EQ(all.reasoning, "\xE4\xBD\xA0");
  EXPECT_EQ(all.answer, "Hi \xF0\x9F\x98\x80 ");
  EXPECT_EQ(output.stop_found(), 1u);
  EXPECT_EQ(output.reasoning_tokens(), 1 + 1 + 3 + 8);  // the bytes from the ">" of <think> to the ">" of </think>
  EXPECT_EQ(used, static_cast<int64_t>(bytes.find(" unseen")));
}

// A vocabulary in which a text has many ways to be tokens: the bytes, and every run of up to `longest` of them that the
// text is made of.
std::shared_ptr<const Tokenizer> run_tokenizer(const std::string& text, std::map<std::string, int32_t>& ids,
                                               size_t longest = 4) {
  BpeVocab vocab;
  std::vector<std::string> letters;
  for (uint32_t b = 0, next = 256; b < 256; ++b) {
    const bool printable = (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
    std::string letter;
    append_utf8(letter, printable ? b : next++);
    vocab.tokens.push_back(letter);
    letters.push_back(letter);
    ids[std::string(1, static_cast<char>(b))] = static_cast<int32_t>(b);
  }
  for (size_t length = 2; length <= longest; ++length) {
    for (size_t at = 0; at + length <= text.size(); ++at) {
      const std::string run = text.substr(at, length);
      if (ids.contains(run)) continue;
      std::string spelt;
      for (const char c : run) spelt += letters[static_cast<unsigned char>(c)];
      ids[run] = static_cast<int32_t>(vocab.tokens.size());
      vocab.tokens.push_back(spelt);
    }
  }
  vocab.pre = "gpt-2";
  auto tokenizer = Tokenizer::from_vocab(std::move(vocab), "runs");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return std::move(tokenizer).value();
}

// Streamed and whole agree for every way to cut the text into tokens, with tags, stop strings and characters that lie
// across tokens.
TEST(OutputText, EveryTokenisationGivesTheSameText) {
  std::mt19937 random(7);
  for (const std::string text :
       {"<think>\nw\xC3\xA9ig\xF0\x9F\x98\x80h</think>\n\nA</thin b</tool>c", "x</think>\ny<thi\xE4\xBD",
        "no tags, STO STOP", "</think></think>{\"a\":\xFF}", "\n <think>a\n\n\nb"}) {
    std::map<std::string, int32_t> ids;
    const auto tokenizer = run_tokenizer(text, ids);
    for (const ReasoningState start : {ReasoningState::kBefore, ReasoningState::kInsideStart, ReasoningState::kAfter}) {
      OutputTextOptions options;
      options.stops = *StopSet::create({"</tool>", "STOP", "\n\n\n"});
      options.reasoning = start;
      std::optional<OutputDelta> first;
      for (int round = 0; round < 200; ++round) {
        OutputText output(tokenizer, options);
        OutputDelta all;
        for (size_t at = 0; at < text.size();) {
          const size_t length = round == 0 ? 1 : std::min<size_t>(1 + random() % 4, text.size() - at);
          if (output.push(ids.at(text.substr(at, length)), all)) break;
          at += length;
        }
        output.flush(all);
        if (!first) first = all;
        ASSERT_EQ(all.reasoning, first->reasoning) << text;
        ASSERT_EQ(all.answer, first->answer) << text;
      }
    }
  }
}

// Every one of the 2^(n-1) ways to cut a text of n bytes into tokens, through tags, stop strings and characters at once; all
// at once is what a request that does not stream gives.
TEST(OutputText, EverySplitOfTheBytesGivesTheSameText) {
  for (const std::string text : {"<t>a\xC3\xA9</t>\n\nb", "</t>aSTb\xE4\xBD\xA0", " <t>S</t>STc", "\xE4\xBD<t>x</t>y",
                                 "<t><t>S\n</t></t>", "\xF0\x9F\x98\x80<tSSTT"}) {
    std::map<std::string, int32_t> ids;
    const auto tokenizer = run_tokenizer(text, ids, text.size());
    for (const ReasoningState start : {ReasoningState::kBefore, ReasoningState::kInsideStart, ReasoningState::kAfter}) {
      OutputTextOptions options;
      options.tags = {"<t>", "</t>"};
      options.stops = *StopSet::create({"ST", "\n\n", "t>y"});
      options.reasoning = start;
      std::optional<OutputDelta> whole;
      std::optional<size_t> stop;
      for (uint32_t cuts = 0; cuts < 1u << (text.size() - 1); ++cuts) {
        OutputText output(tokenizer, options);
        OutputDelta all;
        bool stopped = false;
        for (size_t at = 0, end = 1; end <= text.size() && !stopped; ++end) {
          if (end < text.size() && (cuts >> (end - 1) & 1) == 0) continue;
          stopped = output.push(ids.at(text.substr(at, end - at)), all);
          at = end;
        }
        output.flush(all);
        if (!whole) {
          whole = all;
          stop = output.stop_found();
        }
        ASSERT_EQ(all.reasoning, whole->reasoning) << text << ", cuts " << cuts;
        ASSERT_EQ(all.answer, whole->answer) << text << ", cuts " << cuts;
        ASSERT_EQ(output.stop_found(), stop) << text << ", cuts " << cuts;
      }
    }
  }
}

TEST(OutputText, ACutCharacterAtTheEndIsReplaced) {
  const auto tokenizer = byte_tokenizer();
  OutputTextOptions options;
  options.reasoning = std::nullopt;
  OutputText output(tokenizer, options);
  OutputDelta all;
  for (const char c : std::string("<think>\xF0\x9F")) output.push(static_cast<unsigned char>(c), all);
  EXPECT_EQ(all.answer, "<think>");
  output.flush(all);
  EXPECT_EQ(all.answer, "<think>\uFFFD");
  EXPECT_EQ(output.reasoning_tokens(), 0);
}

}  // namespace
}  // namespace halfbyte
