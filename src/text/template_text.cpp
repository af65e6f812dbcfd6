#include "text/template_text.h"

#include <string.h>  // memmem

#include <algorithm>

namespace halfbyte {

void MarkedText::append(std::string_view bytes, bool user) {
  if (bytes.empty()) return;
  const bool tail_user = edges_.size() % 2 == 1;
  if (user != tail_user) edges_.push_back(static_cast<uint32_t>(bytes_.size()));
  bytes_.append(bytes);
}

void MarkedText::append(const MarkedText& other, size_t begin, size_t end) {
  if (begin >= end) return;
  if (&other == this) {
    const MarkedText copy = other.slice(begin, end);
    append(copy, 0, copy.size());
    return;
  }
  const std::string_view bytes = other.bytes_;
  auto edge = std::upper_bound(other.edges_.begin(), other.edges_.end(), begin);
  bool user = (edge - other.edges_.begin()) % 2 == 1;
  for (; edge != other.edges_.end() && *edge < end; ++edge) {
    append(bytes.substr(begin, *edge - begin), user);
    begin = *edge;
    user = !user;
  }
  append(bytes.substr(begin, end - begin), user);
}

MarkedText MarkedText::slice(size_t begin, size_t end) const {
  MarkedText out;
  out.append(*this, begin, end);
  return out;
}

bool MarkedText::user_at(size_t pos) const {
  return (std::upper_bound(edges_.begin(), edges_.end(), pos) - edges_.begin()) % 2 == 1;
}

namespace utf8 {
size_t length(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

size_t previous(std::string_view text, size_t end) {
  size_t i = end - 1;
  while (i > 0 && (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80) --i;
  return i;
}

bool is_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 28 && c <= 32) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

size_t find(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  const void* hit = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return hit == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(hit) - text.data());
}

size_t rfind(std::string_view text, std::string_view needle) {
  const std::string back_text(text.rbegin(), text.rend()), back_needle(needle.rbegin(), needle.rend());
  const size_t hit = find(back_text, back_needle);
  return hit == std::string_view::npos ? hit : text.size() - hit - needle.size();
}

void strip_space(std::string_view text, size_t& begin, size_t& end, bool left, bool right) {
  while (left && begin < end) {
    size_t after = begin;
    if (!is_space(next(text, after))) break;
    begin = after;
  }
  while (right && begin < end) {
    const size_t start = previous(text, end);
    size_t after = start;
    if (!is_space(next(text, after))) break;
    end = start;
  }
}

}  // namespace utf8
}  // namespace halfbyte
