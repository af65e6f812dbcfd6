// Added tokens: pieces of text that are one token whatever the pre-tokeniser would say, such as "<|im_end|>".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

// As tokenizer.json describes it.
struct AddedTokenRule {
  int32_t id = 0;
  std::string text;
  bool special = false;
  bool single_word = false;  // not next to a word character
  bool lstrip = false;       // takes the white space before it
  bool rstrip = false;       // takes the white space behind it
  bool normalized = false;   // searched in normalised text
};

// Bytes [begin, end) of the text: an added token, or (id < 0) text between added tokens. Never empty.
struct TextPart {
  size_t begin = 0;
  size_t end = 0;
  int32_t id = -1;
};

// Finds added tokens: leftmost first, the longest of those that begin there. Thread-safe once built.
class AddedTokenMatcher {
 public:
  static constexpr size_t kMaxTokenBytes = 1024;

  AddedTokenMatcher();
  // An empty text is left out; of equal texts the first counts, both as in the tokenizers package. Longer than
  // kMaxTokenBytes is kUnsupported: a search looks that far at every byte.
  Status add(AddedTokenRule rule);
  bool empty() const { return rules_.empty(); }

  // Replaces `out` by the parts of `text` (valid UTF-8). Without `special_tokens` the special ones are found and then
  // left as text.
  void split(std::string_view text, bool special_tokens, std::vector<TextPart>& out) const;

 private:
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t rule = -1;
    char byte = 0;
  };
  int32_t child(int32_t node, char byte) const;
  // The rule that matches at text[at...], or -1.
  int32_t longest(std::string_view text, size_t at) const;
  // Where the next token could begin, at or behind `at`.
  size_t next_candidate(std::string_view text, size_t at) const;

  std::vector<AddedTokenRule> rules_;
  std::vector<Node> nodes_;              // a trie; 0 is its root
  std::array<int32_t, 256> root_child_;  // by first byte; -1 if none begins so
  int first_bytes_ = 0;                  // how many different first bytes there are
  char first_byte_ = 0;                  // one of them
};

}  // namespace halfbyte
