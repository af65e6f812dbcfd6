#include "eval/choice.h"

#include <algorithm>
#include <array>

#include "eval/answer_text.h"

namespace halfbyte {
namespace {

constexpr std::string_view kInstruction =
    "\n\nPlease reason step by step, and put the letter of your final answer within \\boxed{}.";

// Without what people write around a letter: "(C)", "**C**", "$C$", "\text{C}", "C.".
std::string_view unwrapped(std::string_view text) {
  constexpr std::string_view kAround = " \t\n\r*_$().:[]{}'\"`";
  for (bool changed = true; changed;) {
    changed = false;
    for (const std::string_view command : {"\\text{", "\\textbf{", "\\mathrm{", "\\mathbf{", "\\boxed{"}) {
      if (!text.starts_with(command)) continue;
      text.remove_prefix(command.size());
      changed = true;
    }
    while (!text.empty() && kAround.find(text.front()) != std::string_view::npos) text.remove_prefix(1), changed = true;
    while (!text.empty() && kAround.find(text.back()) != std::string_view::npos) text.remove_suffix(1), changed = true;
  }
  return text;
}

std::optional<size_t> letter_index(char c, size_t choices) {
  if (c < 'A' || static_cast<size_t>(c - 'A') >= choices) return std::nullopt;
  return static_cast<size_t>(c - 'A');
}

// `led`: something before the text said that an answer comes, so "C because ..." is C; else it could be a word.
std::optional<size_t> chosen(const Question& question, std::string_view text, bool led) {
  const size_t n = question.choices.size();
  // A choice's own text first: it may begin as a letter does ("A. Smith", "C major").
  for (size_t i = 0; i < n; ++i) {
    if (trim(text) == trim(question.choices[i])) return i;
  }
  text = unwrapped(text);
  if (text.empty()) return std::nullopt;
  if (text.size() == 1) return letter_index(text.front(), n);
  // "C. its text", "C) its text", "C: its text"; the text itself need not be the choice's to the letter.
  if (std::string_view(led ? ".):,; *}$\\" : ".):").find(text[1]) == std::string_view::npos) return std::nullopt;
  return letter_index(text.front(), n);
}

// Behind the last of the leads, in any case, to the end of its line.
std::optional<std::string_view> led_line(std::string_view text) {
  constexpr std::array<std::string_view, 2> kLeads{"answer is", "answer:"};
  std::string lower(text);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  size_t behind = std::string::npos;
  for (const std::string_view lead : kLeads) {
    const size_t at = lower.rfind(lead);
    if (at == std::string::npos) continue;
    if (behind == std::string::npos || at + lead.size() > behind) behind = at + lead.size();
  }
  if (behind == std::string::npos) return std::nullopt;
  text = text.substr(behind);
  // "**Answer:** C", "Answer:\nC".
  const size_t first = text.find_first_not_of(" \t\n\r*:");
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first);
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::string choice_letter(size_t index) {
  return std::string(1, static_cast<char>('A' + index));
}

std::string lettered_choices(const Question& question) {
  std::string out;
  for (size_t i = 0; i < question.choices.size(); ++i)
    out += (i == 0 ? "" : "\n") + choice_letter(i) + ". " + question.choices[i];
  return out;
}

std::string choice_prompt(const Question& question) {
  std::string out = question.continued ? "Which ending goes on best?\n\n" : "";
  return out + question.stem + "\n\n" + lettered_choices(question) + std::string(kInstruction);
}

std::optional<std::string> choice_final_answer(const Question& question, std::string_view completion) {
  const auto part = answer_part(completion);
  if (!part) return std::nullopt;
  std::optional<size_t> index;
  if (const auto boxed = last_boxed(*part)) {
    index = chosen(question, *boxed, /*led=*/true);
  } else if (const auto line = led_line(*part)) {
    index = chosen(question, *line, /*led=*/true);
  } else {
    index = chosen(question, *part, /*led=*/false);
  }
  if (!index) return std::nullopt;
  return choice_letter(*index);
}

}  // namespace halfbyte
