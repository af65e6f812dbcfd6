#include "text/detokenizer.h"

#include <algorithm>

#include "base/utf8.h"

namespace halfbyte {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// Appends whole characters and replacements.
void append_checked(std::string_view text, std::string& out) {
  while (true) {
    const std::optional<size_t> broken = find_invalid_utf8(text);
    out.append(text, 0, broken.value_or(text.size()));
    if (!broken) return;
    out += kReplacement;
    text.remove_prefix(*broken + next_code_point(text, *broken).length);
  }
}

}  // namespace

void Utf8Assembler::push(std::string_view bytes, std::string& out) {
  // Finish, or give up, the character that waits.
  while (held_size_ > 0 && !bytes.empty()) {
    held_[held_size_++] = bytes.front();
    const std::string_view held(held_.data(), held_size_);
    if (incomplete_utf8_suffix(held) == held_size_) {
      bytes.remove_prefix(1);
      continue;
    }
    if (next_code_point(held, 0).valid) {
      bytes.remove_prefix(1);
      out += held;
    } else {
      out += kReplacement;  // the new byte is no part of it
    }
    held_size_ = 0;
  }
  const size_t wait = incomplete_utf8_suffix(bytes);
  append_checked(bytes.substr(0, bytes.size() - wait), out);
  if (wait > 0) {
    std::copy(bytes.end() - static_cast<ptrdiff_t>(wait), bytes.end(), held_.begin());
    held_size_ = wait;
  }
}

void Utf8Assembler::flush(std::string& out) {
  if (held_size_ > 0) out += kReplacement;
  held_size_ = 0;
}

void Detokenizer::push(int32_t id, std::string& out) {
  if (skip_special_ && tokenizer_->is_special(id)) return;
  std::string_view bytes = tokenizer_->token_bytes(id);
  if (drop_space_ && !bytes.empty()) {
    if (bytes.front() == ' ') bytes.remove_prefix(1);
    drop_space_ = false;
  }
  assembler_.push(bytes, out);
}

std::string detokenize(const Tokenizer& tokenizer, std::span<const int32_t> ids, bool skip_special) {
  std::string text;
  const std::string bytes = tokenizer.decode(ids, skip_special);
  const bool drop = tokenizer.drops_first_space() && bytes.starts_with(' ');
  append_checked(std::string_view(bytes).substr(drop ? 1 : 0), text);
  return text;
}

}  // namespace halfbyte
