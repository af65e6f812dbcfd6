#include "eval/answer_text.h"

namespace halfbyte {

std::string_view trim(std::string_view text) {
  const size_t first = text.find_first_not_of(kWhiteSpace);
  return first == std::string_view::npos ? std::string_view()
                                         : text.substr(first, text.find_last_not_of(kWhiteSpace) - first + 1);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  text = trim(text);
  while (true) {
    const size_t end = text.find('\n');
    lines.push_back(trim(text.substr(0, end)));
    if (end == std::string_view::npos) return lines;
    text.remove_prefix(end + 1);
  }
}

size_t group_end(std::string_view text, size_t open) {
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
      continue;
    }
    depth += (text[i] == '{') - (text[i] == '}');
    if (depth == 0) return i;
  }
  return std::string_view::npos;
}

std::optional<std::string_view> answer_part(std::string_view completion) {
  constexpr std::string_view kClose = "</think>";
  const size_t close = completion.rfind(kClose);
  if (close != std::string_view::npos) return completion.substr(close + kClose.size());
  if (completion.find("<think>") != std::string_view::npos) return std::nullopt;
  return completion;
}

std::optional<std::string> last_boxed(std::string_view text) {
  for (size_t at = text.rfind("\\boxed"); at != std::string_view::npos;
       at = at == 0 ? text.npos : text.rfind("\\boxed", at - 1)) {
    const size_t open = text.find_first_not_of(' ', at + 6);
    if (open == std::string_view::npos || text[open] != '{') continue;
    const size_t end = group_end(text, open);
    if (end != std::string_view::npos) return std::string(trim(text.substr(open + 1, end - open - 1)));
  }
  return std::nullopt;
}

}  // namespace halfbyte
