#include "eval/math_answer.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "eval/answer_text.h"
#include "eval/math_expression.h"

namespace halfbyte {
namespace {

constexpr std::string_view kRowEnd = "\x01";  // of a matrix, in place of two backslashes
constexpr size_t kLongest = 2000;
constexpr int kMostDepth = 8;

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

// The same for a command: not where a letter follows ("\left" in "\leftarrow").
void replace_command(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
    const size_t end = at + from.size();
    if (end < text.size() && is_letter(text[end])) {
      at = end;
      continue;
    }
    text.replace(at, from.size(), to);
    at += to.size();
  }
}

// "\text{...}" and its kin: a unit behind something is taken away with its exponent, else the words stay.
void unwrap_text(std::string& s) {
  constexpr std::array<std::string_view, 6> kWrappers{"\\textbf{", "\\textit{", "\\text{",
                                                      "\\mbox{",   "\\mathrm{", "\\operatorname{"};
  for (const std::string_view wrapper : kWrappers) {
    for (size_t at = s.find(wrapper); at != std::string::npos; at = s.find(wrapper)) {
      const size_t end = group_end(s, at + wrapper.size() - 1);
      if (end == std::string::npos) return;
      size_t after = end + 1;
      std::string inside = s.substr(at + wrapper.size(), end - at - wrapper.size());
      const bool word = std::any_of(inside.begin(), inside.end(), is_letter);
      const bool joins = trim(inside) == "and" || trim(inside) == "or";
      const bool unit = word && !joins && !trim(std::string_view(s).substr(0, at)).empty();
      if (unit && after + 1 < s.size() && s[after] == '^') after += s[after + 1] == '{' ? 4 : 2;
      if (joins) inside = " , ";
      s.replace(at, std::min(after, s.size()) - at, unit ? " " : inside);
    }
  }
}

// 10,080 and 1,234.5 as one number: groups of three, nothing else in the answer but a sign before it and a unit behind.
void join_thousands(std::string& s) {
  size_t i = !s.empty() && (s[0] == '-' || s[0] == '+') ? 1 : 0;
  const size_t begin = i;
  while (i < s.size() && is_digit(s[i])) ++i;
  if (i == begin || i - begin > 3) return;
  std::string joined = s.substr(0, i);
  bool any = false;
  while (i + 3 < s.size() + 0 && s[i] == ',' && is_digit(s[i + 1]) && is_digit(s[i + 2]) && is_digit(s[i + 3]) &&
         (i + 4 >= s.size() || !is_digit(s[i + 4]))) {
    joined += s.substr(i + 1, 3);
    i += 4;
    any = true;
  }
  const bool ends = i >= s.size() || s[i] == '.' || s[i] == ' ' || is_letter(s[i]);
  if (any && ends && s.find(',', i) == std::string::npos) s = joined + s.substr(i);
}

// "5 cm", "3 square inches", "12 inches^2".
void drop_units(std::string& s) {
  constexpr std::array<std::string_view, 36> kUnits{
      "degrees", "degree",  "inches", "inch",  "feet",  "foot",    "ft",      "cm",     "mm",
      "km",      "kg",      "meters", "meter", "miles", "mile",    "units",   "unit",   "square",
      "cubic",   "dollars", "dollar", "cents", "hours", "hour",    "minutes", "minute", "seconds",
      "second",  "days",    "day",    "years", "year",  "percent", "pounds",  "grams",  "points"};
  while (true) {
    std::string_view rest = s;
    for (const std::string_view power : {"^2", "^3", "^{2}", "^{3}"})
      if (rest.ends_with(power) && rest.size() > power.size() && is_letter(rest[rest.size() - power.size() - 1]))
        rest.remove_suffix(power.size());
    const auto unit = std::find_if(kUnits.begin(), kUnits.end(), [&](std::string_view u) {
      return rest.ends_with(u) && rest.size() > u.size() && !is_letter(rest[rest.size() - u.size() - 1]);
    });
    if (unit == kUnits.end()) return;
    const std::string_view before = trim(rest.substr(0, rest.size() - unit->size()));
    if (before.empty() || !std::any_of(before.begin(), before.end(), is_digit)) return;
    s = std::string(before);
  }
}

std::string normalised(std::string_view text) {
  std::string s(trim(text));
  for (const auto& [open, close] :
       {std::pair("\\(", "\\)"), std::pair("\\[", "\\]"), std::pair("$$", "$$"), std::pair("$", "$")}) {
    const std::string_view o = open, c = close;
    if (s.size() > o.size() + c.size() && s.starts_with(o) && s.ends_with(c) && s[s.size() - c.size() - 1] != '\\')
      s = std::string(trim(std::string_view(s).substr(o.size(), s.size() - o.size() - c.size())));
  }
  replace_all(s, "\\\\", kRowEnd);  // before "\\ " is taken for a space
  for (const auto& [from, to] : {std::pair("\xE2\x88\x92", "-"),
                                 std::pair("\xC2\xB0", ""),
                                 std::pair("\xC3\x97", "*"),
                                 std::pair("\xC2\xB7", "*"),
                                 std::pair("\xCF\x80", "\\pi "),
                                 std::pair("\xE2\x88\x9E", "\\infty "),
                                 std::pair("\xE2\x89\xA4", "\\le "),
                                 std::pair("\xE2\x89\xA5", "\\ge "),
                                 std::pair("\\!", ""),
                                 std::pair("{,}", ","),
                                 std::pair("^{\\circ}", ""),
                                 std::pair("^\\circ", ""),
                                 std::pair("\\$", ""),
                                 std::pair("$", ""),
                                 std::pair("\\%", ""),
                                 std::pair("%", ""),
                                 std::pair("\\,", " "),
                                 std::pair("\\;", " "),
                                 std::pair("\\:", " "),
                                 std::pair("\\ ", " "),
                                 std::pair("~", " "),
                                 std::pair("**", "^")})
    replace_all(s, from, to);
  for (const auto& [from, to] :
       {std::pair("\\left", ""), std::pair("\\right", ""), std::pair("\\displaystyle", ""),
        std::pair("\\dfrac", "\\frac"), std::pair("\\tfrac", "\\frac"), std::pair("\\cfrac", "\\frac"),
        std::pair("\\cdot", "*"), std::pair("\\times", "*"), std::pair("\\div", "/"), std::pair("\\quad", " "),
        std::pair("\\degree", ""), std::pair("\\leq", "\\le"), std::pair("\\geq", "\\ge"), std::pair("\\ne", "\\neq"),
        std::pair("bmatrix", "pmatrix"), std::pair("\\lbrace", "\\{"), std::pair("\\rbrace", "\\}")})
    replace_command(s, from, to);
  unwrap_text(s);
  s = std::string(trim(s));
  while (s.ends_with('.') && s.size() > 1) s.pop_back();
  s = std::string(trim(s));
  drop_units(s);
  // "11, 111, 100" had thin spaces: digits and commas alone, each group of three.
  std::string close;
  for (const char c : s)
    if (c != ' ') close += c;
  std::string number = close;
  join_thousands(number);
  if (number != close && close.find_first_not_of("0123456789,.-+") == std::string::npos &&
      (s == close || text.find("\\!") != std::string_view::npos))
    return number;
  join_thousands(s);
  return s;
}

// At top level, outside brackets and commands' groups.
std::vector<std::string> split_top(std::string_view text, std::string_view separator) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (size_t i = 0; i < text.size();) {
    if (depth == 0 && text.substr(i).starts_with(separator)) {
      parts.emplace_back();
      i += separator.size();
      continue;
    }
    if (text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '{' || text[i + 1] == '}')) {
      depth += text[i + 1] == '{' ? 1 : -1;
      parts.back() += text.substr(i, 2);
      i += 2;
      continue;
    }
    const char c = text[i++];
    depth += (c == '(' || c == '[' || c == '{') - (c == ')' || c == ']' || c == '}');
    parts.back() += c;
  }
  for (std::string& part : parts) part = std::string(trim(part));
  return parts;
}

// "x = 5", "x \in [1,2]": what stands behind a single variable.
std::string_view without_name(std::string_view s) {
  std::string_view rest = s;
  if (rest.empty() || !is_letter(rest.front())) return s;
  rest.remove_prefix(1);
  if (rest.starts_with("_") && rest.size() > 2)
    rest.remove_prefix(rest[1] == '{' ? std::min(rest.find('}') + 1, rest.size()) : 2);
  if (rest.starts_with("(x)")) rest.remove_prefix(3);
  rest = trim(rest);
  if (rest.starts_with("\\in ") || rest.starts_with("\\in[") || rest.starts_with("\\in(")) {
    return trim(rest.substr(3));
  }
  if (!rest.starts_with('=')) return s;
  rest = trim(rest.substr(1));
  return rest.find('=') == std::string_view::npos ? rest : s;
}

bool same(std::string_view a, std::string_view b, int depth);

bool same_each(const std::vector<std::string>& a, const std::vector<std::string>& b, int depth) {
  return a.size() == b.size() &&
         std::equal(a.begin(), a.end(), b.begin(),
                    [&](const std::string& x, const std::string& y) { return same(x, y, depth + 1); });
}

bool same_in_any_order(const std::vector<std::string>& a, std::vector<std::string> b, int depth) {
  if (a.size() != b.size() || a.size() > 64) return false;
  for (const std::string& x : a) {
    const auto at = std::find_if(b.begin(), b.end(), [&](const std::string& y) { return same(x, y, depth + 1); });
    if (at == b.end()) return false;
    b.erase(at);
  }
  return true;
}

struct Bracketed {
  char open = 0, close = 0;
  std::vector<std::string> parts;
};

// "(1, 2]" as one pair of brackets around two parts or more.
std::optional<Bracketed> bracketed(std::string_view s) {
  if (s.size() < 5 || (s.front() != '(' && s.front() != '[') || (s.back() != ')' && s.back() != ']'))
    return std::nullopt;
  int depth = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    depth += (s[i] == '(' || s[i] == '[') - (s[i] == ')' || s[i] == ']');
    if (depth == 0 && i + 1 < s.size()) return std::nullopt;
  }
  Bracketed out{s.front(), s.back(), split_top(s.substr(1, s.size() - 2), ",")};
  return out.parts.size() > 1 ? std::optional(std::move(out)) : std::nullopt;
}

std::optional<std::vector<std::string>> matrix_parts(std::string_view s) {
  constexpr std::string_view kBegin = "\\begin{pmatrix}", kEnd = "\\end{pmatrix}";
  if (!s.starts_with(kBegin) || !s.ends_with(kEnd)) return std::nullopt;
  s = trim(s.substr(kBegin.size(), s.size() - kBegin.size() - kEnd.size()));
  if (s.ends_with(kRowEnd)) s.remove_suffix(kRowEnd.size());
  std::vector<std::string> parts;
  for (const std::string& row : split_top(s, kRowEnd)) {
    for (std::string& cell : split_top(row, "&")) parts.push_back(std::move(cell));
    parts.emplace_back("0*0");  // ends a row: equal to another row's end, at the same place
  }
  return parts;
}

std::optional<std::vector<std::string>> set_parts(std::string_view s) {
  if (!s.starts_with("\\{") || !s.ends_with("\\}") || s.size() < 4) return std::nullopt;
  return split_top(s.substr(2, s.size() - 4), ",");
}

// "4210_{5}" -> {4210, 5}.
std::optional<std::pair<std::string, std::string>> with_base(std::string_view s) {
  const size_t bar = s.find('_');
  if (bar == std::string_view::npos || bar == 0) return std::nullopt;
  std::string_view base = trim(s.substr(bar + 1)), digits = trim(s.substr(0, bar));
  if (base.starts_with('{') && base.ends_with('}')) base = trim(base.substr(1, base.size() - 2));
  const auto all_digits = [](std::string_view t) {
    return !t.empty() && t.find_first_not_of("0123456789ABCDEF") == t.npos;
  };
  if (!all_digits(digits) || !all_digits(base)) return std::nullopt;
  return std::pair(std::string(digits), std::string(base));
}

// Letters alone, three at least, or with spaces: words and not a product of variables.
bool is_words(std::string_view s) {
  if (s.size() >= 3 && s.front() == '(' && s.back() == ')') s = s.substr(1, s.size() - 2);
  const bool letters =
      !s.empty() && std::all_of(s.begin(), s.end(), [](char c) { return is_letter(c) || c == ' ' || c == '-'; });
  return letters && (std::count_if(s.begin(), s.end(), is_letter) >= 3);
}

std::string word_form(std::string_view s) {
  s = trim(s);
  if (s.size() >= 3 && s.front() == '(' && s.back() == ')') s = trim(s.substr(1, s.size() - 2));
  std::string out;
  for (const char c : s)
    if (c != ' ') out += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

// "2x + 3 = y" or "a < x \le b": the same relations between equal sides.
std::optional<bool> same_relation(std::string_view a, std::string_view b, int depth) {
  for (const std::string_view sign : {"=", "<", ">", "\\le ", "\\ge ", "\\neq "}) {
    const auto x = split_top(a, sign), y = split_top(b, sign);
    if (x.size() == 1 && y.size() == 1) continue;
    if (x.size() != y.size()) return false;
    if (same_each(x, y, depth)) return true;
    if (sign != "=" || x.size() != 2) return false;
    return same_zeros("(" + x[0] + ")-(" + x[1] + ")", "(" + y[0] + ")-(" + y[1] + ")");
  }
  return std::nullopt;
}

std::vector<std::string> alternatives(std::string_view s) {
  const size_t at = s.find("\\pm");
  if (at == std::string_view::npos) return split_top(s, ",");
  const std::string before(s.substr(0, at)), after(s.substr(at + 3));
  return {before + "+" + after, before + "-" + after};
}

bool same(std::string_view a, std::string_view b, int depth) {
  if (depth > kMostDepth) return false;
  a = without_name(trim(a));
  b = without_name(trim(b));
  if (a == b) return !a.empty();
  if (is_words(a) || is_words(b)) return word_form(a) == word_form(b);
  if (a.find("\\cup") != a.npos || b.find("\\cup") != b.npos)
    return same_in_any_order(split_top(a, "\\cup"), split_top(b, "\\cup"), depth);
  const auto set_a = set_parts(a), set_b = set_parts(b);
  if (set_a && set_b) return same_in_any_order(*set_a, *set_b, depth);
  const auto matrix_a = matrix_parts(a), matrix_b = matrix_parts(b);
  if (matrix_a || matrix_b) return matrix_a && matrix_b && same_each(*matrix_a, *matrix_b, depth);
  const auto tuple_a = bracketed(a), tuple_b = bracketed(b);
  if (tuple_a || tuple_b) {
    return tuple_a && tuple_b && tuple_a->open == tuple_b->open && tuple_a->close == tuple_b->close &&
           same_each(tuple_a->parts, tuple_b->parts, depth);
  }
  const auto list_a = set_a ? *set_a : alternatives(a), list_b = set_b ? *set_b : alternatives(b);
  if (list_a.size() > 1 || list_b.size() > 1 || set_a || set_b) return same_in_any_order(list_a, list_b, depth);
  const auto base_a = with_base(a), base_b = with_base(b);
  if (base_a || base_b) return base_a == base_b;
  if (const auto relation = same_relation(a, b, depth)) return *relation;
  if (same_expression(a, b)) return true;
  return a.size() + b.size() <= 8 && word_form(a) == word_form(b) && !word_form(a).empty();  // "(C)" and "C"
}

std::optional<std::string> last_number(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && !is_digit(text[end - 1])) --end;
  if (end == 0) return std::nullopt;
  size_t begin = end;
  while (begin > 0 && (is_digit(text[begin - 1]) ||
                       ((text[begin - 1] == ',' || text[begin - 1] == '.') && begin > 1 && is_digit(text[begin - 2]))))
    --begin;
  if (begin > 0 && text[begin - 1] == '-' && (begin == 1 || !is_digit(text[begin - 2]))) --begin;
  return std::string(text.substr(begin, end - begin));
}

}  // namespace

std::optional<std::string> math_final_answer(std::string_view completion) {
  const auto part = answer_part(completion);
  if (!part) return std::nullopt;
  if (auto boxed = last_boxed(*part)) return boxed;
  for (const std::string_view lead : {"####", "answer is", "Answer is", "answer:", "Answer:"}) {
    const size_t at = part->rfind(lead);
    if (at == std::string_view::npos) continue;
    std::string_view line = part->substr(at + lead.size());
    line = trim(line.substr(0, line.find('\n')));
    if (line.starts_with(':')) line = trim(line.substr(1));
    while (line.ends_with('.') || line.ends_with('*')) line.remove_suffix(1);
    if (!line.empty()) return std::string(trim(line));
  }
  return last_number(*part);
}

bool same_math(std::string_view a, std::string_view b) {
  if (a.size() > kLongest || b.size() > kLongest) return false;
  return same(normalised(a), normalised(b), 0);
}

}  // namespace halfbyte
