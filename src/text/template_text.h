// Text inside a chat template: bytes plus the mark that tells which of them came with the request (a message, a tool, a
// keyword argument) and which the model's template wrote. The tokenizer reads special tokens only in the latter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace halfbyte {

// Valid UTF-8 with runs of user bytes. At most 4 GiB (the template budgets stay far below). Thread-compatible value
// type.
class MarkedText {
 public:
  MarkedText() = default;
  explicit MarkedText(std::string bytes, bool user = false) : bytes_(std::move(bytes)) {
    if (user && !bytes_.empty()) edges_.push_back(0);
  }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  // Heap bytes this text holds, for the memory budget.
  uint64_t held_bytes() const { return bytes_.size() + edges_.size() * sizeof(uint32_t); }

  void append(std::string_view bytes, bool user = false);
  void append(const MarkedText& other) { append(other, 0, other.size()); }
  // The bytes [begin, end) of `other`, which may be *this.
  void append(const MarkedText& other, size_t begin, size_t end);
  MarkedText slice(size_t begin, size_t end) const;

  // True when the byte at `pos` came with the request.
  bool user_at(size_t pos) const;

  // Calls f(std::string_view run, bool user) for the runs in order.
  template <class F>
  void for_each_run(F f) const {
    size_t begin = 0;
    bool user = false;
    for (uint32_t edge : edges_) {
      if (edge > begin) f(std::string_view(bytes_).substr(begin, edge - begin), user);
      begin = edge;
      user = !user;
    }
    if (begin < bytes_.size()) f(std::string_view(bytes_).substr(begin), user);
  }

 private:
  std::string bytes_;
  // Strictly increasing offsets where the origin flips; the text starts as template text.
  std::vector<uint32_t> edges_;
};

// Steps through text that is known to be valid UTF-8 (base/utf8.h checks and encodes).
namespace utf8 {

// Characters of valid UTF-8.
size_t length(std::string_view text);
// Bytes of the character that starts at `pos`.
inline size_t char_bytes(std::string_view text, size_t pos) {
  const auto c = static_cast<unsigned char>(text[pos]);
  return c < 0x80 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}
// The character at `pos`; `pos` moves behind it.
inline char32_t next(std::string_view text, size_t& pos) {
  const Utf8Char c = next_code_point(text, pos);
  pos += c.length;
  return c.code_point;
}
// The start of the character that ends at `end` > 0.
size_t previous(std::string_view text, size_t end);
// What Python's str.isspace() and re's \s accept.
bool is_space(char32_t c);
// Like std::string_view::find and rfind, but linear in the text for any needle.
size_t find(std::string_view text, std::string_view needle, size_t from = 0);
size_t rfind(std::string_view text, std::string_view needle);
// [begin, end) without the white space at its ends.
void strip_space(std::string_view text, size_t& begin, size_t& end, bool left, bool right);

}  // namespace utf8
}  // namespace halfbyte
