// From tokens to text, piece by piece. A token may end inside a UTF-8 character, so the last bytes wait until the rest
// arrives; what can never become a character is replaced by U+FFFD, once for each maximal broken part (as Python's
// errors="replace" and the tokenizers package do it). However the bytes are cut, the text is the same.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "text/tokenizer.h"

namespace halfbyte {

// Thread-compatible.
class Utf8Assembler {
 public:
  // Appends to `out` the text that `bytes` completes; always valid UTF-8.
  void push(std::string_view bytes, std::string& out);
  // No more bytes come: an unfinished character becomes U+FFFD. The assembler can be used again.
  void flush(std::string& out);
  // Bytes that wait, 0 to 3.
  size_t held_bytes() const { return held_size_; }

 private:
  std::array<char, 4> held_{};
  size_t held_size_ = 0;
};

// Thread-compatible.
class Detokenizer {
 public:
  // With `skip_special`, special tokens give no text.
  Detokenizer(std::shared_ptr<const Tokenizer> tokenizer, bool skip_special)
      : tokenizer_(std::move(tokenizer)), skip_special_(skip_special), drop_space_(tokenizer_->drops_first_space()) {}

  // Appends to `out` the text that the token completes. An id without a token gives nothing.
  void push(int32_t id, std::string& out);
  void flush(std::string& out) { assembler_.flush(out); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool skip_special_;
  bool drop_space_;  // one that the text begins with, when it comes
  Utf8Assembler assembler_;
};

// The text of all ids at once: what a Detokenizer gives in pieces.
std::string detokenize(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special);

}  // namespace halfbyte
