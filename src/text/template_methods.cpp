// Methods of strings, lists and dictionaries. Methods that change their object do not exist here (values are immutable,
// as in transformers' ImmutableSandboxedEnvironment).
#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "text/template_calls.h"
#include "text/template_ops.h"

namespace halfbyte {
namespace {

using Method = Result<TemplateValue> (*)(TemplateBudget&, const TemplateValue& self, const CallArgs&);

struct MethodEntry {
  std::string_view name;
  Method call;  // null: Python has it, the subset has not
};

// --- str ---

Result<TemplateValue> strip_method(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args,
                                   std::string_view name, bool left, bool right) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind(name, args, {"chars"}));
  if (bound.set(0) == nullptr) return strip(budget, self.text(), nullptr, left, right);
  HB_ASSIGN(const std::string chars, bound.text(0, ""));
  return strip(budget, self.text(), &chars, left, right);
}

Result<TemplateValue> str_strip(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  return strip_method(b, s, a, "strip", true, true);
}
Result<TemplateValue> str_lstrip(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  return strip_method(b, s, a, "lstrip", true, false);
}
Result<TemplateValue> str_rstrip(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  return strip_method(b, s, a, "rstrip", false, true);
}

// Pieces between white space; at most `limit` splits if it is not negative.
Result<TemplateValue> split_space(TemplateBudget& budget, const MarkedText& text, int64_t limit) {
  const std::string_view bytes = text.bytes();
  std::vector<TemplateValue> parts;
  size_t pos = 0;
  while (true) {
    size_t end = bytes.size();
    utf8::strip_space(bytes, pos, end, /*left=*/true, /*right=*/false);
    if (pos >= bytes.size()) break;
    size_t stop = pos;
    if (limit == 0) {
      stop = bytes.size();
    } else {
      while (stop < bytes.size()) {
        size_t after = stop;
        if (utf8::is_space(utf8::next(bytes, after))) break;
        stop = after;
      }
    }
    HB_ASSIGN(TemplateValue part, budget.string(text.slice(pos, stop)));
    parts.push_back(std::move(part));
    pos = stop;
    if (limit > 0) --limit;
  }
  return budget.list(std::move(parts));
}

Result<TemplateValue> split_separator(TemplateBudget& budget, const MarkedText& text, const std::string& separator,
                                      int64_t limit, bool from_right) {
  if (separator.empty()) return invalid_data("split: the separator is empty");
  // From the right is from the left of both texts written backwards.
  std::string bytes = text.bytes(), needle = separator;
  if (from_right) {
    std::reverse(bytes.begin(), bytes.end());
    std::reverse(needle.begin(), needle.end());
  }
  std::vector<std::pair<size_t, size_t>> parts;
  size_t begin = 0;
  for (; limit != 0; --limit) {
    const size_t hit = utf8::find(bytes, needle, begin);
    if (hit == std::string::npos) break;
    HB_TRY(budget.spend(1));
    parts.emplace_back(begin, hit);
    begin = hit + needle.size();
  }
  parts.emplace_back(begin, bytes.size());
  if (from_right) {
    std::reverse(parts.begin(), parts.end());
    for (auto& [from, to] : parts) {
      from = bytes.size() - from;
      to = bytes.size() - to;
      std::swap(from, to);
    }
  }
  std::vector<TemplateValue> out;
  for (const auto& [from, to] : parts) {
    HB_ASSIGN(TemplateValue part, budget.string(text.slice(from, to)));
    out.push_back(std::move(part));
  }
  return budget.list(std::move(out));
}

Result<TemplateValue> split_method(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args,
                                   std::string_view name, bool from_right) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind(name, args, {"sep", "maxsplit"}));
  HB_ASSIGN(const int64_t limit, bound.integer(1, -1));
  HB_TRY(budget.spend_bytes(self.text().size()));
  if (bound.set(0) == nullptr) {
    if (from_right && limit >= 0)
      return unsupported("rsplit without a separator but with a limit is outside the template subset");
    return split_space(budget, self.text(), limit);
  }
  HB_ASSIGN(const std::string separator, bound.text(0, ""));
  return split_separator(budget, self.text(), separator, limit, from_right);
}

Result<TemplateValue> str_split(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  return split_method(b, s, a, "split", false);
}
Result<TemplateValue> str_rsplit(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  return split_method(b, s, a, "rsplit", true);
}

Result<TemplateValue> str_partition_at(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args,
                                       std::string_view name, bool last) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind(name, args, {"sep"}, 1));
  HB_ASSIGN(const std::string separator, bound.text(0, ""));
  if (separator.empty()) return invalid_data(fmt::format("{}: the separator is empty", name));
  const MarkedText& text = self.text();
  HB_TRY(budget.spend_bytes(text.size()));
  const size_t hit = last ? utf8::rfind(text.bytes(), separator) : utf8::find(text.bytes(), separator);
  const bool found = hit != std::string::npos;
  const size_t head = found ? hit : last ? 0 : text.size();
  const size_t tail = found ? hit + separator.size() : last ? 0 : text.size();
  HB_ASSIGN(TemplateValue a, budget.string(text.slice(0, head)));
  HB_ASSIGN(TemplateValue b, budget.string(text.slice(head, tail)));
  HB_ASSIGN(TemplateValue c, budget.string(text.slice(tail, text.size())));
  return budget.list({std::move(a), std::move(b), std::move(c)}, ListFlavor::kTuple);
}
Result<TemplateValue> str_partition(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  return str_partition_at(b, s, a, "partition", false);
}
Result<TemplateValue> str_rpartition(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  return str_partition_at(b, s, a, "rpartition", true);
}

// The strings that startswith and endswith take: one, or a tuple.
Result<bool> any_affix(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args, std::string_view name,
                       bool at_end) {
  if (!args.named.empty() || args.positional.size() != 1) {
    return unsupported(fmt::format("{} with other than one argument is outside the template subset", name));
  }
  const std::string_view bytes = self.bytes();
  const auto one = [&](const TemplateValue& affix) -> Result<bool> {
    if (!affix.is_string()) {
      return invalid_data(
          fmt::format("{}: expected a string or a tuple of strings, found '{}'", name, type_name(affix)));
    }
    HB_TRY(budget.spend_bytes(affix.bytes().size()));
    return at_end ? bytes.ends_with(affix.bytes()) : bytes.starts_with(affix.bytes());
  };
  const TemplateValue& arg = args.positional[0];
  if (!arg.is_list() || arg.list().flavor != ListFlavor::kTuple) return one(arg);
  for (const TemplateValue& affix : arg.list().items) {
    HB_ASSIGN(const bool hit, one(affix));
    if (hit) return true;
  }
  return false;
}
Result<TemplateValue> str_startswith(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  HB_ASSIGN(const bool hit, any_affix(b, s, a, "startswith", false));
  return TemplateValue::boolean(hit);
}
Result<TemplateValue> str_endswith(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  HB_ASSIGN(const bool hit, any_affix(b, s, a, "endswith", true));
  return TemplateValue::boolean(hit);
}

Result<TemplateValue> str_replace(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("replace", args, {"old", "new", "count"}, 2));
  HB_ASSIGN(const int64_t count, bound.integer(2, -1));
  for (size_t i = 0; i < 2; ++i) {
    if (!bound.get(i)->is_string()) {
      return invalid_data(
          fmt::format("replace: argument {} is '{}', expected a string", i + 1, type_name(*bound.get(i))));
    }
  }
  return replace(budget, self.text(), bound.get(0)->text(), bound.get(1)->text(), count);
}

Result<TemplateValue> no_args(std::string_view name, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind(name, args, {}));
  return TemplateValue::none();
}

template <CaseChange kChange>
Result<TemplateValue> str_case(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_TRY(no_args("upper, lower, title or capitalize", args).status());
  return change_case(budget, self.text(), kChange);
}

Result<TemplateValue> str_join(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("join", args, {"iterable"}, 1));
  HB_ASSIGN(const auto list, iterate(budget, *bound.get(0)));
  return join(budget, list->items, self.text(), /*strings_only=*/true);
}

Result<TemplateValue> str_find_at(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args,
                                  std::string_view name, bool last) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind(name, args, {"sub"}, 1));
  HB_ASSIGN(const std::string sub, bound.text(0, ""));
  const std::string_view bytes = self.bytes();
  HB_TRY(budget.spend_bytes(bytes.size()));
  const size_t hit = last ? utf8::rfind(bytes, sub) : utf8::find(bytes, sub);
  if (hit == std::string_view::npos) return TemplateValue::integer(-1);
  return TemplateValue::integer(static_cast<int64_t>(utf8::length(bytes.substr(0, hit))));
}
Result<TemplateValue> str_find(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  return str_find_at(b, s, a, "find", false);
}
Result<TemplateValue> str_rfind(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  return str_find_at(b, s, a, "rfind", true);
}

Result<TemplateValue> str_count(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("count", args, {"sub"}, 1));
  HB_ASSIGN(const std::string sub, bound.text(0, ""));
  const std::string_view bytes = self.bytes();
  HB_TRY(budget.spend_bytes(bytes.size()));
  if (sub.empty()) return TemplateValue::integer(static_cast<int64_t>(utf8::length(bytes)) + 1);
  int64_t n = 0;
  for (size_t p = utf8::find(bytes, sub); p != std::string_view::npos; p = utf8::find(bytes, sub, p + sub.size())) ++n;
  return TemplateValue::integer(n);
}

Result<TemplateValue> str_splitlines(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_TRY(no_args("splitlines", args).status());
  HB_ASSIGN(std::vector<TemplateValue> lines, split_lines(budget, self.text()));
  return budget.list(std::move(lines));
}

Result<TemplateValue> remove_affix(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args,
                                   std::string_view name, bool at_end) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind(name, args, {"affix"}, 1));
  HB_ASSIGN(const std::string affix, bound.text(0, ""));
  const MarkedText& text = self.text();
  if (affix.empty() || !(at_end ? text.bytes().ends_with(affix) : text.bytes().starts_with(affix))) return self;
  return budget.string(at_end ? text.slice(0, text.size() - affix.size()) : text.slice(affix.size(), text.size()));
}
Result<TemplateValue> str_removeprefix(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  return remove_affix(b, s, a, "removeprefix", false);
}
Result<TemplateValue> str_removesuffix(TemplateBudget& b, const TemplateValue& s, const CallArgs& a) {
  return remove_affix(b, s, a, "removesuffix", true);
}

// ASCII digits, which is what templates ask about; other scripts' digits say false here.
Result<TemplateValue> str_isdigit(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_TRY(no_args("isdigit", args).status());
  HB_TRY(budget.spend_bytes(self.bytes().size()));
  const std::string& s = self.bytes();
  return TemplateValue::boolean(!s.empty() &&
                                std::all_of(s.begin(), s.end(), [](char c) { return c >= '0' && c <= '9'; }));
}

constexpr MethodEntry kStringMethods[] = {
    {"capitalize", str_case<CaseChange::kCapitalize>},
    {"casefold", nullptr},
    {"center", nullptr},
    {"count", str_count},
    {"encode", nullptr},
    {"endswith", str_endswith},
    {"expandtabs", nullptr},
    {"find", str_find},
    {"format", nullptr},
    {"format_map", nullptr},
    {"index", nullptr},
    {"isalnum", nullptr},
    {"isalpha", nullptr},
    {"isascii", nullptr},
    {"isdecimal", nullptr},
    {"isdigit", str_isdigit},
    {"isidentifier", nullptr},
    {"islower", nullptr},
    {"isnumeric", nullptr},
    {"isprintable", nullptr},
    {"isspace", nullptr},
    {"istitle", nullptr},
    {"isupper", nullptr},
    {"join", str_join},
    {"ljust", nullptr},
    {"lower", str_case<CaseChange::kLower>},
    {"lstrip", str_lstrip},
    {"maketrans", nullptr},
    {"partition", str_partition},
    {"removeprefix", str_removeprefix},
    {"removesuffix", str_removesuffix},
    {"replace", str_replace},
    {"rfind", str_rfind},
    {"rindex", nullptr},
    {"rjust", nullptr},
    {"rpartition", str_rpartition},
    {"rsplit", str_rsplit},
    {"rstrip", str_rstrip},
    {"split", str_split},
    {"splitlines", str_splitlines},
    {"startswith", str_startswith},
    {"strip", str_strip},
    {"swapcase", nullptr},
    {"title", str_case<CaseChange::kTitle>},
    {"translate", nullptr},
    {"upper", str_case<CaseChange::kUpper>},
    {"zfill", nullptr},
};

// --- dict ---

Result<TemplateValue> dict_items(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_TRY(no_args("items", args).status());
  std::vector<TemplateValue> out;
  for (const auto& [key, value] : self.dict().items) {
    HB_ASSIGN(TemplateValue pair, budget.list({key, value}, ListFlavor::kTuple));
    out.push_back(std::move(pair));
  }
  return budget.list(std::move(out));
}
Result<TemplateValue> dict_keys(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_TRY(no_args("keys", args).status());
  HB_ASSIGN(const auto keys, iterate(budget, self));
  return TemplateValue(keys);
}
Result<TemplateValue> dict_values(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_TRY(no_args("values", args).status());
  std::vector<TemplateValue> out;
  for (const auto& entry : self.dict().items) out.push_back(entry.second);
  return budget.list(std::move(out));
}
Result<TemplateValue> dict_get(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("get", args, {"key", "default"}, 1));
  HB_TRY(budget.spend(1));
  if (const TemplateValue* v = self.dict().find(*bound.get(0)); v != nullptr) return *v;
  return bound.get(1) != nullptr ? *bound.get(1) : TemplateValue::none();
}

constexpr MethodEntry kDictMethods[] = {
    {"clear", nullptr},      {"copy", nullptr},   {"fromkeys", nullptr},   {"get", dict_get},
    {"items", dict_items},   {"keys", dict_keys}, {"pop", nullptr},        {"popitem", nullptr},
    {"setdefault", nullptr}, {"update", nullptr}, {"values", dict_values},
};

// --- list ---

Result<TemplateValue> list_index(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("index", args, {"value"}, 1));
  const auto& items = self.list().items;
  for (size_t i = 0; i < items.size(); ++i) {
    HB_ASSIGN(const bool same, equal(budget, items[i], *bound.get(0)));
    if (same) return TemplateValue::integer(static_cast<int64_t>(i));
  }
  return invalid_data("index: the value is not in the list");
}
Result<TemplateValue> list_count(TemplateBudget& budget, const TemplateValue& self, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("count", args, {"value"}, 1));
  int64_t n = 0;
  for (const TemplateValue& v : self.list().items) {
    HB_ASSIGN(const bool same, equal(budget, v, *bound.get(0)));
    n += same;
  }
  return TemplateValue::integer(n);
}

constexpr MethodEntry kListMethods[] = {
    {"append", nullptr}, {"clear", nullptr},    {"copy", nullptr},   {"count", list_count},
    {"extend", nullptr}, {"index", list_index}, {"insert", nullptr}, {"pop", nullptr},
    {"remove", nullptr}, {"reverse", nullptr},  {"sort", nullptr},
};

const MethodEntry* find_method(const TemplateValue& self, std::string_view name) {
  const auto search = [&](const auto& table) -> const MethodEntry* {
    for (const MethodEntry& m : table) {
      if (m.name == name) return &m;
    }
    return nullptr;
  };
  if (self.is_string()) return search(kStringMethods);
  if (self.is_dict()) return search(kDictMethods);
  if (self.is_list() && self.list().flavor != ListFlavor::kGenerator) return search(kListMethods);
  return nullptr;
}

}  // namespace

bool has_method(const TemplateValue& self, std::string_view name) {
  return find_method(self, name) != nullptr;
}

Result<TemplateValue> call_method(TemplateBudget& budget, const TemplateValue& self, std::string_view name,
                                  const CallArgs& args) {
  const MethodEntry* method = find_method(self, name);
  if (method == nullptr) return invalid_data(fmt::format("'{}' has no method {}", type_name(self), quote(name)));
  if (method->call == nullptr) {
    return unsupported(fmt::format("the method '{}' of '{}' is outside the template subset", name, type_name(self)));
  }
  return method->call(budget, self, args);
}

}  // namespace halfbyte
