#include "text/tokenizer_added.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "text/unicode_classes.h"
#include "text/utf8_scan.h"

namespace halfbyte {
namespace {

bool ends_with_word(std::string_view text) {
  const char* p = text.data() + text.size();
  if (text.empty()) return false;
  utf8_step_back(p);
  return UnicodeClasses::get().is_word(utf8_next(p));
}

bool starts_with_word(std::string_view text) {
  const char* p = text.data();
  return !text.empty() && UnicodeClasses::get().is_word(utf8_next(p));
}

// Where the white space at the end of text[from, to) begins.
size_t space_begin(std::string_view text, size_t from, size_t to) {
  const char* p = text.data() + to;
  while (p > text.data() + from) {
    const char* before = p;
    utf8_step_back(before);
    const char* next = before;
    if (UnicodeClasses::get().of(utf8_next(next)) != CharClass::kSpace) break;
    p = before;
  }
  return static_cast<size_t>(p - text.data());
}

// Where the white space that begins at `from` ends.
size_t space_end(std::string_view text, size_t from) {
  const char* p = text.data() + from;
  const char* const end = text.data() + text.size();
  for (const char* next = p; p < end; p = next) {
    if (UnicodeClasses::get().of(utf8_next(next)) != CharClass::kSpace) break;
  }
  return static_cast<size_t>(p - text.data());
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher() : nodes_(1) {
  root_child_.fill(-1);
}

int32_t AddedTokenMatcher::child(int32_t node, char byte) const {
  if (node == 0) return root_child_[static_cast<unsigned char>(byte)];
  for (int32_t c = nodes_[static_cast<size_t>(node)].first_child; c >= 0;
       c = nodes_[static_cast<size_t>(c)].next_sibling) {
    if (nodes_[static_cast<size_t>(c)].byte == byte) return c;
  }
  return -1;
}

Status AddedTokenMatcher::add(AddedTokenRule rule) {
  if (rule.text.empty()) return {};
  if (rule.text.size() > kMaxTokenBytes) {
    return unsupported(fmt::format("added token {} has {} bytes, at most {} are supported", rule.id, rule.text.size(),
                                   kMaxTokenBytes));
  }
  int32_t node = 0;
  for (const char byte : rule.text) {
    int32_t next = child(node, byte);
    if (next < 0) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.push_back({-1, nodes_[static_cast<size_t>(node)].first_child, -1, byte});
      nodes_[static_cast<size_t>(node)].first_child = next;
      if (node == 0) {
        root_child_[static_cast<unsigned char>(byte)] = next;
        ++first_bytes_;
        first_byte_ = byte;
      }
    }
    node = next;
  }
  if (nodes_[static_cast<size_t>(node)].rule >= 0) return {};
  nodes_[static_cast<size_t>(node)].rule = static_cast<int32_t>(rules_.size());
  rules_.push_back(std::move(rule));
  return {};
}

int32_t AddedTokenMatcher::longest(std::string_view text, size_t at) const {
  int32_t found = -1;
  int32_t node = 0;
  for (; at < text.size(); ++at) {
    node = child(node, text[at]);
    if (node < 0) break;
    if (nodes_[static_cast<size_t>(node)].rule >= 0) found = nodes_[static_cast<size_t>(node)].rule;
  }
  return found;
}

size_t AddedTokenMatcher::next_candidate(std::string_view text, size_t at) const {
  if (first_bytes_ == 1) {
    const void* found = at < text.size() ? std::memchr(text.data() + at, first_byte_, text.size() - at) : nullptr;
    return found ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : text.size();
  }
  while (at < text.size() && root_child_[static_cast<unsigned char>(text[at])] < 0) ++at;
  return at;
}

// Keeps to tokenizers' AddedVocabulary::find_matches, also where tokens that strip white space meet.
void AddedTokenMatcher::split(std::string_view text, bool special_tokens, std::vector<TextPart>& out) const {
  out.clear();
  size_t done = 0;
  size_t stripped = 0;  // where the last white space taken by an rstrip ends
  for (size_t at = empty() ? text.size() : next_candidate(text, 0); at < text.size(); at = next_candidate(text, at)) {
    const int32_t found = longest(text, at);
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedTokenRule& rule = rules_[static_cast<size_t>(found)];
    size_t begin = at;
    size_t end = at + rule.text.size();
    at = end;
    if (rule.special && !special_tokens) continue;
    if (rule.single_word && (ends_with_word(text.substr(0, begin)) || starts_with_word(text.substr(end)))) continue;
    if (rule.lstrip) begin = begin > done ? space_begin(text, done, begin) : done;
    // Up to `stripped` all is white space already, so that tokens made of white space cost no second look.
    if (rule.rstrip) stripped = end = space_end(text, std::max(end, stripped));
    if (done < begin) out.push_back({done, begin, -1});
    // Nothing may be left of a token whose text another one's rstrip took; that library drops it.
    if (begin < end) out.push_back({begin, end, rule.id});
    done = end;
  }
  if (done < text.size()) out.push_back({done, text.size(), -1});
}

}  // namespace halfbyte
