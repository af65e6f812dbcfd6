#include "text/template_print.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/template_eval.h"

namespace halfbyte {
namespace {

// str.isprintable() of one character.
bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

// How repr() writes one character inside quotes, or "" for itself.
std::string repr_escape(char32_t c, char quote) {
  if (c == static_cast<unsigned char>(quote) || c == '\\') return std::string("\\") + static_cast<char>(c);
  if (c == '\n') return "\\n";
  if (c == '\r') return "\\r";
  if (c == '\t') return "\\t";
  if (is_printable(c)) return "";
  const auto u = static_cast<uint32_t>(c);
  return u < 0x100     ? fmt::format("\\x{:02x}", u)
         : u < 0x10000 ? fmt::format("\\u{:04x}", u)
                       : fmt::format("\\U{:08x}", u);
}

// How json.dumps writes one character, or "" for itself.
std::string json_escape(char32_t c, bool ensure_ascii) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\b': return "\\b";
    case '\f': return "\\f";
    default: break;
  }
  const auto u = static_cast<uint32_t>(c);
  if (u < 0x20) return fmt::format("\\u{:04x}", u);
  if (!ensure_ascii || (u >= 0x20 && u < 0x7F)) return "";
  if (u < 0x10000) return fmt::format("\\u{:04x}", u);
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((u - 0x10000) >> 10), 0xDC00 + ((u - 0x10000) & 0x3FF));
}

// Appends `text` with each character for which escape() is not empty replaced; marks are kept.
template <class Escape>
Status append_escaped(const MarkedText& text, TextBuilder& out, Escape escape) {
  const std::string_view bytes = text.bytes();
  size_t plain = 0;
  for (size_t pos = 0; pos < bytes.size();) {
    const size_t start = pos;
    const char32_t c = utf8::next(bytes, pos);
    const std::string replaced = escape(c);
    if (replaced.empty()) continue;
    HB_TRY(out.append(text, plain, start));
    HB_TRY(out.append(replaced, text.user_at(start)));
    plain = pos;
  }
  return out.append(text, plain, bytes.size());
}

Status append_repr(TemplateBudget& budget, const TemplateValue& value, TextBuilder& out);

Status append_repr_string(const MarkedText& text, TextBuilder& out) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  HB_TRY(out.append(std::string_view(&quote, 1)));
  HB_TRY(append_escaped(text, out, [&](char32_t c) { return repr_escape(c, quote); }));
  return out.append(std::string_view(&quote, 1));
}

Status append_repr_list(TemplateBudget& budget, const TemplateList& list, TextBuilder& out) {
  if (list.flavor == ListFlavor::kGenerator) return out.append("<generator>");
  const bool tuple = list.flavor == ListFlavor::kTuple;
  HB_TRY(out.append(tuple ? "(" : "["));
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) HB_TRY(out.append(", "));
    HB_TRY(append_repr(budget, list.items[i], out));
  }
  if (tuple && list.items.size() == 1) HB_TRY(out.append(","));
  return out.append(tuple ? ")" : "]");
}

template <class Items>
Status append_repr_items(TemplateBudget& budget, const Items& items, TextBuilder& out) {
  HB_TRY(out.append("{"));
  bool first = true;
  for (const auto& [key, value] : items) {
    if (!first) HB_TRY(out.append(", "));
    first = false;
    HB_TRY(append_repr(budget, key, out));
    HB_TRY(out.append(": "));
    HB_TRY(append_repr(budget, value, out));
  }
  return out.append("}");
}

Status append_repr(TemplateBudget& budget, const TemplateValue& value, TextBuilder& out) {
  HB_TRY(budget.spend(1));
  switch (value.kind()) {
    case TemplateKind::kString: return append_repr_string(value.text(), out);
    case TemplateKind::kList: return append_repr_list(budget, value.list(), out);
    case TemplateKind::kDict: return append_repr_items(budget, value.dict().items, out);
    case TemplateKind::kUndefined: return out.append("Undefined");
    // Only the outermost one prints its attributes: a namespace may hold itself.
    case TemplateKind::kNamespace: return out.append("<Namespace>");
    default: return append_str(budget, value, out);
  }
}

class JsonWriter {
 public:
  JsonWriter(TemplateBudget& budget, const JsonStyle& style, TextBuilder& out)
      : budget_(budget), style_(style), out_(out) {}

  Status write(const TemplateValue& v, int level) {
    HB_TRY(budget_.spend(1));
    switch (v.kind()) {
      case TemplateKind::kString: return string(v.text());
      case TemplateKind::kList:
        if (v.list().flavor == ListFlavor::kGenerator) break;
        return list(v.list(), level);
      case TemplateKind::kDict: return dict(v.dict(), level);
      case TemplateKind::kNone:
      case TemplateKind::kBool:
      case TemplateKind::kInt:
      case TemplateKind::kDouble: return out_.append(scalar(v));
      default: break;
    }
    return invalid_data(fmt::format("tojson: a value of type '{}' is not JSON serializable", type_name(v)));
  }

 private:
  static std::string scalar(const TemplateValue& v) {
    if (v.is_none()) return "null";
    if (v.kind() == TemplateKind::kBool) return v.as_bool() ? "true" : "false";
    if (v.kind() == TemplateKind::kInt) return fmt::format("{}", v.as_int());
    const double d = v.as_double();
    if (std::isnan(d)) return "NaN";
    if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
    return python_float(d);
  }

  Status string(const MarkedText& text) {
    HB_TRY(out_.append("\""));
    HB_TRY(append_escaped(text, out_, [&](char32_t c) { return json_escape(c, style_.ensure_ascii); }));
    return out_.append("\"");
  }

  Status break_line(int level) {
    if (!style_.indent) return {};
    HB_TRY(out_.append("\n"));
    for (int i = 0; i < level; ++i) HB_TRY(out_.append(*style_.indent));
    return {};
  }

  Status list(const TemplateList& list, int level) {
    if (list.items.empty()) return out_.append("[]");
    HB_TRY(out_.append("["));
    for (size_t i = 0; i < list.items.size(); ++i) {
      if (i > 0) HB_TRY(out_.append(style_.item_separator));
      HB_TRY(break_line(level + 1));
      HB_TRY(write(list.items[i], level + 1));
    }
    HB_TRY(break_line(level));
    return out_.append("]");
  }

  Status dict(const TemplateDict& dict, int level) {
    if (dict.items.empty()) return out_.append("{}");
    std::vector<size_t> order(dict.items.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (style_.sort_keys) {
      Status failure;
      std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        const auto before = less(budget_, dict.items[a].first, dict.items[b].first);
        if (!before.ok()) failure = before.status();
        return before.ok() && *before;
      });
      HB_TRY(failure);
    }
    HB_TRY(out_.append("{"));
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0) HB_TRY(out_.append(style_.item_separator));
      HB_TRY(break_line(level + 1));
      const auto& [key, value] = dict.items[order[i]];
      if (key.is_string()) {
        HB_TRY(string(key.text()));
      } else {
        HB_TRY(string(MarkedText(scalar(key))));
      }
      HB_TRY(out_.append(style_.key_separator));
      HB_TRY(write(value, level + 1));
    }
    HB_TRY(break_line(level));
    return out_.append("}");
  }

  TemplateBudget& budget_;
  const JsonStyle& style_;
  TextBuilder& out_;
};

}  // namespace

std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  const size_t e = text.find('e');
  const bool negative = text[0] == '-';
  std::string digits;
  for (char c : text.substr(negative, e - negative)) {
    if (c != '.') digits += c;
  }
  int exponent = 0;
  const char* first = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(first, text.data() + text.size(), exponent);
  std::string out = negative ? "-" : "";
  const auto n = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (n > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (n <= exponent + 1) return out + digits + std::string(static_cast<size_t>(exponent + 1 - n), '0') + ".0";
  return out + digits.substr(0, static_cast<size_t>(exponent) + 1) + "." +
         digits.substr(static_cast<size_t>(exponent) + 1);
}

Status append_str(TemplateBudget& budget, const TemplateValue& value, TextBuilder& out) {
  HB_TRY(budget.spend(1));
  switch (value.kind()) {
    case TemplateKind::kUndefined: return {};
    case TemplateKind::kNone: return out.append("None");
    case TemplateKind::kBool: return out.append(value.as_bool() ? "True" : "False");
    case TemplateKind::kInt: return out.append(fmt::format("{}", value.as_int()));
    case TemplateKind::kDouble: return out.append(python_float(value.as_double()));
    case TemplateKind::kString: return out.append(value.text());
    case TemplateKind::kList:
    case TemplateKind::kDict: return append_repr(budget, value, out);
    case TemplateKind::kNamespace:
      HB_TRY(out.append("<Namespace "));
      HB_TRY(append_repr_items(budget, value.name_space().items, out));
      return out.append(">");
    case TemplateKind::kCallable: return out.append("<function>");
  }
  return {};
}

Result<TemplateValue> to_str(TemplateBudget& budget, const TemplateValue& value) {
  if (value.is_string()) return value;
  TextBuilder out(budget);
  HB_TRY(append_str(budget, value, out));
  return std::move(out).value();
}

Result<TemplateValue> to_json(TemplateBudget& budget, const TemplateValue& value, const JsonStyle& style) {
  TextBuilder out(budget);
  HB_TRY(JsonWriter(budget, style, out).write(value, 0));
  return std::move(out).value();
}

}  // namespace halfbyte
