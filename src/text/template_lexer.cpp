#include "text/template_lexer.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "text/template_text.h"

namespace halfbyte {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// Digits of a base with single underscores between them ("1_000"), from `pos`; where they end.
template <class IsDigit>
size_t digits_end(std::string_view s, size_t pos, IsDigit is) {
  size_t end = pos;
  while (end < s.size()) {
    if (is(s[end])) {
      ++end;
    } else if (s[end] == '_' && end > pos && end + 1 < s.size() && is(s[end + 1])) {
      ++end;
    } else {
      break;
    }
  }
  return end;
}

class Lexer {
 public:
  explicit Lexer(const TemplateSource& source) : source_(source), s_(source.text()) {}

  Result<std::vector<TemplateToken>> run() {
    while (pos_ < s_.size()) {
      const size_t tag = find_tag(pos_);
      if (tag == std::string_view::npos) {
        emit(TokenKind::kData, pos_, s_.size());
        break;
      }
      HB_TRY(lex_tag(tag));
    }
    emit(TokenKind::kEnd, s_.size(), s_.size());
    return std::move(tokens_);
  }

 private:
  void emit(TokenKind kind, size_t begin, size_t end) {
    tokens_.push_back({kind, static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }

  size_t find_tag(size_t from) const {
    for (size_t i = s_.find('{', from); i != std::string_view::npos && i + 1 < s_.size(); i = s_.find('{', i + 1)) {
      if (s_[i + 1] == '%' || s_[i + 1] == '{' || s_[i + 1] == '#') return i;
    }
    return std::string_view::npos;
  }

  char at(size_t i) const { return i < s_.size() ? s_[i] : '\0'; }

  size_t skip_space(size_t i) const {
    size_t end = s_.size();
    utf8::strip_space(s_, i, end, /*left=*/true, /*right=*/false);
    return i;
  }

  // The text before a tag, with what the tag's sign strips taken off.
  void emit_data(size_t begin, size_t tag, char sign, bool variable) {
    size_t end = tag;
    if (sign == '-') {
      size_t b = begin;
      utf8::strip_space(s_, b, end, /*left=*/false, /*right=*/true);
    } else if (sign != '+' && !variable) {
      size_t line = tag;
      while (line > begin && s_[line - 1] != '\n') --line;
      if (line > begin || line_starting_) {
        size_t b = line, e = tag;
        utf8::strip_space(s_, b, e, /*left=*/true, /*right=*/false);
        if (b == tag) end = line;
      }
    }
    if (end > begin) emit(TokenKind::kData, begin, end);
  }

  Status lex_tag(size_t tag) {
    const char type = s_[tag + 1];
    size_t after = tag + 2;
    const char sign = at(after) == '-' || at(after) == '+' ? at(after) : '\0';
    if (sign != '\0') ++after;
    emit_data(pos_, tag, sign, type == '{');
    line_starting_ = false;
    if (type == '#') return skip_comment(tag, after);
    if (type == '%') {
      if (const size_t body = raw_body(after); body != 0) return lex_raw(tag, body);
    }
    emit(type == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, tag, after);
    pos_ = after;
    return lex_expression(tag, /*variable=*/type == '{');
  }

  // Where the text after a closing "%}" or "#}" at `i` goes on: '-' before it takes all white space, '+' nothing,
  // otherwise one newline goes (trim_blocks).
  size_t after_close(size_t i, char sign) {
    size_t next = i + 2;
    if (sign == '-') {
      next = skip_space(next);
    } else if (sign != '+' && at(next) == '\n') {
      ++next;
    }
    line_starting_ = s_[next - 1] == '\n';
    return next;
  }

  Status skip_comment(size_t tag, size_t after) {
    const size_t close = s_.find("#}", after);
    if (close == std::string_view::npos) return error(tag, "the comment that starts here has no '#}'");
    const char sign = close > after ? s_[close - 1] : '\0';
    pos_ = after_close(close, sign);
    return {};
  }

  // The start of the text of a {% raw %} block, if the tag is one; else 0.
  size_t raw_body(size_t after) const {
    size_t i = skip_space(after);
    if (s_.substr(i, 3) != "raw") return 0;
    i = skip_space(i + 3);
    if (s_.substr(i, 3) == "-%}") return skip_space(i + 3);
    return s_.substr(i, 2) == "%}" ? i + 2 : 0;
  }

  Status lex_raw(size_t tag, size_t body) {
    line_starting_ = s_[body - 1] == '\n';
    for (size_t i = s_.find("{%", body); i != std::string_view::npos; i = s_.find("{%", i + 1)) {
      size_t p = i + 2;
      const char sign = at(p) == '-' || at(p) == '+' ? at(p) : '\0';
      p = skip_space(p + (sign != '\0'));
      if (s_.substr(p, 6) != "endraw") continue;
      p = skip_space(p + 6);
      const char close_sign = at(p) == '-' || at(p) == '+' ? at(p) : '\0';
      if (s_.substr(p + (close_sign != '\0'), 2) != "%}") continue;
      emit_data(body, i, sign, /*variable=*/false);
      pos_ = after_close(p + (close_sign != '\0'), close_sign);
      return {};
    }
    return error(tag, "the raw block that starts here has no {% endraw %}");
  }

  // True when the tag ends at pos_; moves behind it.
  bool lex_close(bool variable) {
    const char* close = variable ? "}}" : "%}";
    const char sign = at(pos_) == '-' || (!variable && at(pos_) == '+') ? at(pos_) : '\0';
    const size_t at_close = pos_ + (sign != '\0');
    if (s_.substr(at_close, 2) != close) return false;
    const size_t begin = pos_;
    if (variable) {
      pos_ = sign == '-' ? skip_space(at_close + 2) : at_close + 2;
      line_starting_ = s_[pos_ - 1] == '\n';
    } else {
      pos_ = after_close(at_close, sign);
    }
    emit(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, begin, at_close + 2);
    return true;
  }

  Status lex_expression(size_t tag, bool variable) {
    std::string open;  // the closing brackets still to come
    while (true) {
      if (open.empty() && lex_close(variable)) return {};
      if (const size_t next = skip_space(pos_); next != pos_) {
        pos_ = next;
        continue;
      }
      if (pos_ >= s_.size()) {
        return error(tag, fmt::format("the tag that starts here has no '{}'", variable ? "}}" : "%}"));
      }
      const char c = s_[pos_];
      if (is_digit(c)) {
        lex_number();
      } else if (is_name_start(c)) {
        size_t end = pos_ + 1;
        while (end < s_.size() && (is_name_start(s_[end]) || is_digit(s_[end]))) ++end;
        take(TokenKind::kName, end);
      } else if (c == '\'' || c == '"') {
        HB_TRY(lex_string());
      } else {
        HB_TRY(lex_operator(open));
      }
    }
  }

  void take(TokenKind kind, size_t end) {
    emit(kind, pos_, end);
    pos_ = end;
  }

  void lex_number() {
    if (!(pos_ > 0 && s_[pos_ - 1] == '.')) {
      const size_t whole = digits_end(s_, pos_, is_digit);
      size_t end = whole;
      if (at(end) == '.' && is_digit(at(end + 1))) end = digits_end(s_, end + 1, is_digit);
      if (at(end) == 'e' || at(end) == 'E') {
        const size_t digits = end + 1 + (at(end + 1) == '+' || at(end + 1) == '-');
        if (is_digit(at(digits))) end = digits_end(s_, digits, is_digit);
      }
      if (end != whole) return take(TokenKind::kFloat, end);
    }
    const char base = static_cast<char>(at(pos_ + 1) | 0x20);
    if (s_[pos_] == '0' && (base == 'x' || base == 'b' || base == 'o')) {
      const auto is = [base](char c) {
        return base == 'b'   ? c == '0' || c == '1'
               : base == 'o' ? c >= '0' && c <= '7'
                             : is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
      };
      if (is(at(pos_ + 2))) return take(TokenKind::kInt, digits_end(s_, pos_ + 2, is));
    }
    if (s_[pos_] == '0') return take(TokenKind::kInt, digits_end(s_, pos_, [](char c) { return c == '0'; }));
    take(TokenKind::kInt, digits_end(s_, pos_, is_digit));
  }

  Status lex_string() {
    const char quote = s_[pos_];
    for (size_t i = pos_ + 1; i < s_.size(); ++i) {
      if (s_[i] == '\\') {
        ++i;
      } else if (s_[i] == quote) {
        take(TokenKind::kString, i + 1);
        return {};
      }
    }
    return error(pos_, "the string that starts here is not closed");
  }

  Status lex_operator(std::string& open) {
    static constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    static constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    for (std::string_view two : kTwo) {
      if (s_.substr(pos_, 2) == two) {
        take(TokenKind::kOperator, pos_ + 2);
        return {};
      }
    }
    const char c = s_[pos_];
    if (kOne.find(c) == std::string_view::npos) {
      size_t next = pos_;
      utf8::next(s_, next);
      return error(pos_, "unexpected character " + quote(s_.substr(pos_, next - pos_)));
    }
    if (c == '(') open += ')';
    if (c == '[') open += ']';
    if (c == '{') open += '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) return error(pos_, fmt::format("unexpected '{}'", c));
      if (open.back() != c) return error(pos_, fmt::format("unexpected '{}', expected '{}'", c, open.back()));
      open.pop_back();
    }
    take(TokenKind::kOperator, pos_ + 1);
    return {};
  }

  Status error(size_t offset, const std::string& message) const {
    return source_.error(static_cast<uint32_t>(offset), message);
  }

  const TemplateSource& source_;
  std::string_view s_;
  size_t pos_ = 0;
  bool line_starting_ = true;  // what was consumed last ended a line
  std::vector<TemplateToken> tokens_;
};

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  const char l = static_cast<char>(c | 0x20);
  return l >= 'a' && l <= 'f' ? l - 'a' + 10 : -1;
}

}  // namespace

TemplateSource::TemplateSource(std::string_view source, std::string name) : name_(std::move(name)) {
  text_.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      text_ += '\n';
    } else {
      text_ += source[i];
    }
  }
  if (!text_.empty() && text_.back() == '\n') text_.pop_back();
  line_starts_.push_back(0);
  for (size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(static_cast<uint32_t>(i + 1));
  }
}

std::string TemplateSource::where(uint32_t offset) const {
  const auto line = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset) - line_starts_.begin();
  const uint32_t start = line_starts_[static_cast<size_t>(line - 1)];
  const size_t column = utf8::length(text().substr(start, offset - start)) + 1;
  return fmt::format("{}: {}:{}", name_, line, column);
}

Result<std::vector<TemplateToken>> lex_template(const TemplateSource& source) {
  return Lexer(source).run();
}

Result<std::string> unescape_string(const TemplateSource& source, const TemplateToken& token) {
  const std::string_view s = source.text().substr(token.begin + 1, token.end - token.begin - 2);
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] != '\\') {
      out += s[i];
      continue;
    }
    const char c = s[++i];
    static constexpr std::string_view kFrom = "\\'\"abfnrtv";
    static constexpr std::string_view kTo = "\\'\"\a\b\f\n\r\t\v";
    if (c == '\n') continue;
    if (const size_t simple = kFrom.find(c); simple != std::string_view::npos) {
      out += kTo[simple];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t value = 0;
      for (size_t d = 0; d < digits; ++d) {
        const int h = i + 1 < s.size() ? hex_digit(s[i + 1]) : -1;
        if (h < 0) return source.error(token.begin, fmt::format("a '\\{}' escape needs {} hex digits", c, digits));
        value = value << 4 | static_cast<uint32_t>(h);
        ++i;
      }
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) {
        return source.error(token.begin, fmt::format("the escape '\\{}' stands for no character", c));
      }
      append_utf8(out, value);
    } else if (c >= '0' && c <= '7') {
      uint32_t value = static_cast<uint32_t>(c - '0');
      for (int d = 0; d < 2 && i + 1 < s.size() && s[i + 1] >= '0' && s[i + 1] <= '7'; ++d) {
        value = value * 8 + static_cast<uint32_t>(s[++i] - '0');
      }
      append_utf8(out, value);
    } else if (c == 'N') {
      return unsupported(source.where(token.begin) + ": '\\N{...}' escapes are outside the template subset");
    } else {
      out += '\\';
      out += c;
    }
  }
  return out;
}

}  // namespace halfbyte
