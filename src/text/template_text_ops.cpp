// Case, white space, replace, join and lines of marked text.
#include <fmt/format.h>
#include <utf8proc.h>

#include "text/template_calls.h"
#include "text/template_print.h"

namespace halfbyte {
namespace {

bool is_cased_letter(char32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category == UTF8PROC_CATEGORY_LU || category == UTF8PROC_CATEGORY_LL || category == UTF8PROC_CATEGORY_LT;
}

bool begins_word_after(char32_t c) {
  return utf8::is_space(c) ||
         (c < 0x80 && std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos);
}

char32_t mapped(char32_t c, bool upper, bool title) {
  const auto u = static_cast<utf8proc_int32_t>(c);
  return static_cast<char32_t>(title ? utf8proc_totitle(u) : upper ? utf8proc_toupper(u) : utf8proc_tolower(u));
}

bool in_set(std::string_view chars, char32_t c) {
  for (size_t i = 0; i < chars.size();) {
    if (utf8::next(chars, i) == c) return true;
  }
  return false;
}

}  // namespace

// One character maps to one: Python's few expansions (the German sharp s to "SS") are done for that letter only.
Result<TemplateValue> change_case(TemplateBudget& budget, const MarkedText& text, CaseChange change) {
  HB_TRY(budget.spend_bytes(text.size()));
  TextBuilder out(budget);
  const std::string_view bytes = text.bytes();
  bool start = change != CaseChange::kUpper && change != CaseChange::kLower;
  for (size_t pos = 0; pos < bytes.size();) {
    const bool user = text.user_at(pos);
    const char32_t c = utf8::next(bytes, pos);
    const bool title = start && change != CaseChange::kTitleWords;
    const bool upper = start || change == CaseChange::kUpper;
    std::string piece;
    if (c == 0xDF && upper) {
      piece = title ? "Ss" : "SS";
    } else {
      append_utf8(piece, mapped(c, upper, title));
    }
    HB_TRY(out.append(piece, user));
    start =
        change == CaseChange::kTitle ? !is_cased_letter(c) : change == CaseChange::kTitleWords && begins_word_after(c);
  }
  return std::move(out).value();
}

Result<TemplateValue> strip(TemplateBudget& budget, const MarkedText& text, const std::string* chars, bool left,
                            bool right) {
  size_t begin = 0, end = text.size();
  const std::string_view bytes = text.bytes();
  if (chars == nullptr) {
    utf8::strip_space(bytes, begin, end, left, right);
    HB_TRY(budget.spend_bytes(text.size()));
    return budget.string(text.slice(begin, end));
  }
  // The set is searched once a character: count both.
  const uint64_t per_character = 1 + chars->size() / 16;
  while (left && begin < end) {
    size_t after = begin;
    HB_TRY(budget.spend(per_character));
    if (!in_set(*chars, utf8::next(bytes, after))) break;
    begin = after;
  }
  while (right && begin < end) {
    const size_t start = utf8::previous(bytes, end);
    size_t after = start;
    HB_TRY(budget.spend(per_character));
    if (!in_set(*chars, utf8::next(bytes, after))) break;
    end = start;
  }
  return budget.string(text.slice(begin, end));
}

Result<TemplateValue> replace(TemplateBudget& budget, const MarkedText& text, const MarkedText& from,
                              const MarkedText& to, int64_t count) {
  HB_TRY(budget.spend_bytes(text.size() + from.size()));
  const std::string_view bytes = text.bytes();
  TextBuilder out(budget);
  uint64_t left = count < 0 ? UINT64_MAX : static_cast<uint64_t>(count);
  size_t pos = 0;
  if (from.empty()) {  // before every character and at the end
    while (left > 0) {
      HB_TRY(budget.spend(1));
      HB_TRY(out.append(to));
      --left;
      if (pos >= bytes.size()) break;
      const size_t next = pos + utf8::char_bytes(bytes, pos);
      HB_TRY(out.append(text, pos, next));
      pos = next;
    }
  } else {
    while (left > 0) {
      const size_t hit = utf8::find(bytes, from.bytes(), pos);
      if (hit == std::string_view::npos) break;
      HB_TRY(budget.spend(1));
      HB_TRY(out.append(text, pos, hit));
      HB_TRY(out.append(to));
      pos = hit + from.size();
      --left;
    }
  }
  if (pos < bytes.size()) HB_TRY(out.append(text, pos, bytes.size()));
  return std::move(out).value();
}

Result<TemplateValue> join(TemplateBudget& budget, const std::vector<TemplateValue>& items, const MarkedText& separator,
                           bool strings_only) {
  TextBuilder out(budget);
  for (size_t i = 0; i < items.size(); ++i) {
    if (strings_only && !items[i].is_string()) {
      return invalid_data(fmt::format("join: item {} is '{}', expected a string", i, type_name(items[i])));
    }
    if (i > 0) HB_TRY(out.append(separator));
    HB_TRY(append_str(budget, items[i], out));
  }
  return std::move(out).value();
}

Result<std::vector<TemplateValue>> split_lines(TemplateBudget& budget, const MarkedText& text) {
  const std::string_view bytes = text.bytes();
  HB_TRY(budget.spend_bytes(bytes.size()));
  std::vector<TemplateValue> lines;
  size_t start = 0;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t at = pos;
    const char32_t c = utf8::next(bytes, pos);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    if (c == '\r' && pos < bytes.size() && bytes[pos] == '\n') ++pos;
    HB_ASSIGN(TemplateValue line, budget.string(text.slice(start, at)));
    lines.push_back(std::move(line));
    start = pos;
  }
  if (start < bytes.size()) {
    HB_ASSIGN(TemplateValue line, budget.string(text.slice(start, bytes.size())));
    lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace halfbyte
