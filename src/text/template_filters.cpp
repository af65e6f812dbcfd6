// The filters of the template subset, with the meaning of Jinja2 3.1 and transformers' tojson.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/quote.h"
#include "text/template_calls.h"
#include "text/template_ops.h"
#include "text/template_print.h"

namespace halfbyte {
namespace {

using Value = TemplateValue;
using Filter = Result<Value> (*)(TemplateBudget&, const Value& input, const CallArgs&);

struct FilterEntry {
  std::string_view name;
  Filter call;
};

// Filters of text take any value's str(), as Jinja's soft_str does.
Result<Value> text_of(TemplateBudget& budget, const Value& v) {
  return to_str(budget, v);
}

Result<Value> tojson_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound,
            BoundArgs::bind("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"}));
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (const Value* indent = bound.set(1); indent != nullptr) {
    if (indent->is_string()) {
      style.indent = indent->bytes();
    } else {
      HB_ASSIGN(const int64_t spaces, bound.integer(1, 0));
      if (spaces > 64) return resource_exhausted(fmt::format("tojson: an indent of {} is more than 64", spaces));
      style.indent = std::string(static_cast<size_t>(std::max<int64_t>(spaces, 0)), ' ');
    }
    style.item_separator = ",";
  }
  if (const Value* separators = bound.set(2); separators != nullptr) {
    if (!separators->is_list() || separators->list().items.size() != 2 || !separators->list().items[0].is_string() ||
        !separators->list().items[1].is_string()) {
      return invalid_data("tojson: separators are two strings");
    }
    style.item_separator = separators->list().items[0].bytes();
    style.key_separator = separators->list().items[1].bytes();
  }
  return to_json(budget, input, style);
}

Result<Value> trim_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("trim", args, {"chars"}));
  HB_ASSIGN(const Value text, text_of(budget, input));
  if (bound.set(0) == nullptr) return strip(budget, text.text(), nullptr, true, true);
  HB_ASSIGN(const std::string chars, bound.text(0, ""));
  return strip(budget, text.text(), &chars, true, true);
}

Result<Value> length_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_TRY(BoundArgs::bind("length", args, {}).status());
  HB_ASSIGN(const int64_t n, length_of(budget, input));
  return Value::integer(n);
}

Result<Value> items_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_TRY(BoundArgs::bind("items", args, {}).status());
  if (input.is_undefined()) return budget.list({}, ListFlavor::kGenerator);
  if (!input.is_dict()) return invalid_data(fmt::format("items: expected a mapping, found '{}'", type_name(input)));
  HB_ASSIGN(const Value pairs, call_method(budget, input, "items", {}));
  return budget.list(pairs.list().items, ListFlavor::kGenerator);
}

Result<Value> string_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_TRY(BoundArgs::bind("string", args, {}).status());
  return to_str(budget, input);
}

// Values "." reaches: "a.b.0", or an index.
Result<Value> attribute_path(TemplateBudget& budget, const Value& object, const Value& path) {
  if (!path.is_string()) return get_item(budget, object, path);
  Value value = object;
  std::string_view rest = path.bytes();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string part(rest.substr(0, dot));
    const bool digits =
        !part.empty() && std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
    int64_t index = 0;
    std::from_chars(part.data(), part.data() + part.size(), index);
    HB_ASSIGN(value, get_item(budget, value, digits ? Value::integer(index) : Value::constant(part)));
    if (dot == std::string_view::npos) return value;
    rest.remove_prefix(dot + 1);
  }
}

Result<Value> join_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("join", args, {"d", "attribute"}));
  HB_ASSIGN(const auto list, iterate(budget, input));
  std::vector<Value> items = list->items;
  if (const Value* attribute = bound.set(1); attribute != nullptr) {
    for (Value& v : items) {
      HB_ASSIGN(v, attribute_path(budget, v, *attribute));
    }
  }
  Value separator = Value::constant("");
  if (bound.get(0) != nullptr) {
    HB_ASSIGN(separator, to_str(budget, *bound.get(0)));
  }
  return join(budget, items, separator.text(), /*strings_only=*/false);
}

Result<Value> default_filter(TemplateBudget&, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("default", args, {"default_value", "boolean"}));
  if (!input.is_undefined() && !(bound.flag(1, false) && !truth(input))) return input;
  return bound.get(0) != nullptr ? *bound.get(0) : Value::constant("");
}

template <CaseChange kChange>
Result<Value> case_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_TRY(BoundArgs::bind("upper, lower, title or capitalize", args, {}).status());
  HB_ASSIGN(const Value text, text_of(budget, input));
  return change_case(budget, text.text(), kChange);
}

Result<Value> replace_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("replace", args, {"old", "new", "count"}, 2));
  HB_ASSIGN(const int64_t count, bound.set(2) == nullptr ? Result<int64_t>(-1) : bound.integer(2, -1));
  HB_ASSIGN(const Value text, text_of(budget, input));
  HB_ASSIGN(const Value from, text_of(budget, *bound.get(0)));
  HB_ASSIGN(const Value to, text_of(budget, *bound.get(1)));
  return replace(budget, text.text(), from.text(), to.text(), count);
}

Result<Value> edge_filter(TemplateBudget& budget, const Value& input, const CallArgs& args, std::string_view name,
                          bool last) {
  HB_TRY(BoundArgs::bind(name, args, {}).status());
  HB_ASSIGN(const auto list, iterate(budget, input));
  if (list->items.empty()) return budget.undefined("No " + std::string(name) + " item, sequence was empty.");
  return last ? list->items.back() : list->items.front();
}
Result<Value> first_filter(TemplateBudget& b, const Value& v, const CallArgs& a) {
  return edge_filter(b, v, a, "first", false);
}
Result<Value> last_filter(TemplateBudget& b, const Value& v, const CallArgs& a) {
  return edge_filter(b, v, a, "last", true);
}

Result<Value> list_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_TRY(BoundArgs::bind("list", args, {}).status());
  HB_ASSIGN(const auto list, iterate(budget, input));
  return budget.list(list->items);
}

Result<Value> reverse_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_TRY(BoundArgs::bind("reverse", args, {}).status());
  const Value back = Value::integer(-1);
  if (input.is_string()) return get_slice(budget, input, nullptr, nullptr, &back);
  HB_ASSIGN(const auto list, iterate(budget, input));
  return budget.list(std::vector<Value>(list->items.rbegin(), list->items.rend()), ListFlavor::kGenerator);
}

// int(): whole text in base 10, or the integer part of a number's text.
Result<Value> int_filter(TemplateBudget&, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("int", args, {"default", "base"}));
  if (bound.get(1) != nullptr) return unsupported("int: the argument base is outside the template subset");
  if (input.is_undefined()) return invalid_data(input.undefined_text());
  const Value otherwise = bound.get(0) != nullptr ? *bound.get(0) : Value::integer(0);
  if (input.is_integral()) return Value::integer(input.as_int());
  double real = 0;
  if (input.kind() == TemplateKind::kDouble) {
    real = input.as_double();
  } else if (input.is_string()) {
    size_t begin = 0, end = input.bytes().size();
    utf8::strip_space(input.bytes(), begin, end, true, true);
    std::string s = input.bytes().substr(begin, end - begin);
    if (!s.empty() && s[0] == '+') s.erase(0, 1);
    int64_t whole = 0;
    const auto read = std::from_chars(s.data(), s.data() + s.size(), whole);
    if (read.ec == std::errc() && read.ptr == s.data() + s.size()) return Value::integer(whole);
    const auto number = std::from_chars(s.data(), s.data() + s.size(), real);
    if (number.ec != std::errc() || number.ptr != s.data() + s.size()) return otherwise;
  } else {
    return otherwise;
  }
  if (!(std::abs(real) < 9.2e18)) return otherwise;
  return Value::integer(static_cast<int64_t>(real));
}

Result<Value> float_filter(TemplateBudget&, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("float", args, {"default"}));
  if (input.is_undefined()) return invalid_data(input.undefined_text());
  if (input.is_number()) return Value::real(input.as_double());
  if (input.is_string()) {
    size_t begin = 0, end = input.bytes().size();
    utf8::strip_space(input.bytes(), begin, end, true, true);
    double real = 0;
    const char* first = input.bytes().data() + begin;
    const char* stop = input.bytes().data() + end;
    const auto read = std::from_chars(first, stop, real);
    if (read.ec == std::errc() && read.ptr == stop && first != stop) return Value::real(real);
  }
  return bound.get(0) != nullptr ? *bound.get(0) : Value::real(0.0);
}

Result<Value> abs_filter(TemplateBudget&, const Value& input, const CallArgs& args) {
  HB_TRY(BoundArgs::bind("abs", args, {}).status());
  if (input.kind() == TemplateKind::kDouble) return Value::real(std::abs(input.as_double()));
  if (!input.is_integral()) return invalid_data(fmt::format("abs: expected a number, found '{}'", type_name(input)));
  return input.as_int() < 0 ? negate(input) : Result<Value>(Value::integer(input.as_int()));
}

// The index's order of `items` under less(), by an attribute if given.
Result<std::vector<size_t>> sorted_order(TemplateBudget& budget, const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  Status failure;
  // A comparison that fails says "not before" for all that follow; the order is thrown away then.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (!failure.ok()) return false;
    const auto before = reverse ? less(budget, keys[b], keys[a]) : less(budget, keys[a], keys[b]);
    if (!before.ok()) failure = before.status();
    return before.ok() && *before;
  });
  HB_TRY(failure);
  return order;
}

// What strings compare as when case does not count.
Result<Value> fold(TemplateBudget& budget, const Value& v, bool case_sensitive) {
  if (case_sensitive || !v.is_string()) return v;
  return change_case(budget, v.text(), CaseChange::kLower);
}

Result<Value> sort_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("sort", args, {"reverse", "case_sensitive", "attribute"}));
  HB_ASSIGN(const auto list, iterate(budget, input));
  std::vector<Value> keys;
  for (const Value& v : list->items) {
    Value key = v;
    if (bound.set(2) != nullptr) {
      HB_ASSIGN(key, attribute_path(budget, v, *bound.set(2)));
    }
    HB_ASSIGN(key, fold(budget, key, bound.flag(1, false)));
    keys.push_back(std::move(key));
  }
  HB_ASSIGN(const std::vector<size_t> order, sorted_order(budget, keys, bound.flag(0, false)));
  std::vector<Value> out;
  for (size_t i : order) out.push_back(list->items[i]);
  return budget.list(std::move(out));
}

Result<Value> dictsort_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("dictsort", args, {"case_sensitive", "by", "reverse"}));
  HB_ASSIGN(const std::string by, bound.text(1, "key"));
  if (by != "key" && by != "value") return invalid_data("dictsort: 'by' is \"key\" or \"value\"");
  if (!input.is_dict()) return invalid_data(fmt::format("dictsort: expected a mapping, found '{}'", type_name(input)));
  std::vector<Value> keys;
  for (const auto& [k, v] : input.dict().items) {
    HB_ASSIGN(Value key, fold(budget, by == "key" ? k : v, bound.flag(0, false)));
    keys.push_back(std::move(key));
  }
  HB_ASSIGN(const std::vector<size_t> order, sorted_order(budget, keys, bound.flag(2, false)));
  std::vector<Value> out;
  for (size_t i : order) {
    HB_ASSIGN(Value pair, budget.list({input.dict().items[i].first, input.dict().items[i].second}, ListFlavor::kTuple));
    out.push_back(std::move(pair));
  }
  return budget.list(std::move(out));
}

Result<Value> unique_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("unique", args, {"case_sensitive"}));
  HB_ASSIGN(const auto list, iterate(budget, input));
  std::vector<Value> seen, out;
  for (const Value& v : list->items) {
    HB_ASSIGN(Value key, fold(budget, v, bound.flag(0, false)));
    if (v.is_dict() || v.is_list())
      return invalid_data(fmt::format("unique: '{}' cannot be compared by hash", type_name(v)));
    bool known = false;
    for (const Value& s : seen) {
      HB_ASSIGN(const bool same, equal(budget, s, key));
      known = known || same;
    }
    if (known) continue;
    seen.push_back(std::move(key));
    out.push_back(v);
  }
  return budget.list(std::move(out), ListFlavor::kGenerator);
}

Result<Value> extreme_filter(TemplateBudget& budget, const Value& input, const CallArgs& args, std::string_view name,
                             bool max) {
  HB_TRY(BoundArgs::bind(name, args, {}).status());
  HB_ASSIGN(const auto list, iterate(budget, input));
  if (list->items.empty()) return budget.undefined("No aggregated item, sequence was empty.");
  Value best = list->items[0];
  HB_ASSIGN(Value best_key, fold(budget, best, false));
  for (size_t i = 1; i < list->items.size(); ++i) {
    HB_ASSIGN(const Value key, fold(budget, list->items[i], false));
    HB_ASSIGN(const bool better, max ? less(budget, best_key, key) : less(budget, key, best_key));
    if (!better) continue;
    best = list->items[i];
    best_key = key;
  }
  return best;
}
Result<Value> max_filter(TemplateBudget& b, const Value& v, const CallArgs& a) {
  return extreme_filter(b, v, a, "max", true);
}
Result<Value> min_filter(TemplateBudget& b, const Value& v, const CallArgs& a) {
  return extreme_filter(b, v, a, "min", false);
}

Result<Value> sum_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("sum", args, {"attribute", "start"}));
  HB_ASSIGN(const auto list, iterate(budget, input));
  Value total = bound.get(1) != nullptr ? *bound.get(1) : Value::integer(0);
  for (const Value& v : list->items) {
    Value term = v;
    if (bound.set(0) != nullptr) {
      HB_ASSIGN(term, attribute_path(budget, v, *bound.set(0)));
    }
    HB_ASSIGN(total, binary_op(budget, BinaryOp::kAdd, total, term));
  }
  return total;
}

// As Jinja's map and select: what is false, even a number, has no items.
Result<std::shared_ptr<const TemplateList>> iterate_if_true(TemplateBudget& budget, const Value& v) {
  return iterate(budget, truth(v) ? v : Value());
}

// map('upper'), map(attribute='role', default='x').
Result<Value> map_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const auto list, iterate_if_true(budget, input));
  std::vector<Value> out;
  if (args.positional.empty()) {
    HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("map", args, {"attribute", "default"}, 1));
    for (const Value& v : list->items) {
      HB_ASSIGN(Value item, attribute_path(budget, v, *bound.get(0)));
      if (item.is_undefined() && bound.get(1) != nullptr) item = *bound.get(1);
      out.push_back(std::move(item));
    }
    return budget.list(std::move(out), ListFlavor::kGenerator);
  }
  if (!args.positional[0].is_string()) return invalid_data("map: expected the name of a filter");
  // map('map', 'map', ...) would nest as deep as it has arguments.
  if (args.positional[0].bytes() == "map") return unsupported("map of map is outside the template subset");
  CallArgs rest = args;
  rest.positional.erase(rest.positional.begin());
  for (const Value& v : list->items) {
    HB_TRY(budget.spend(1));
    HB_ASSIGN(Value item, apply_filter(budget, args.positional[0].bytes(), v, rest));
    out.push_back(std::move(item));
  }
  return budget.list(std::move(out), ListFlavor::kGenerator);
}

// select, reject, selectattr, rejectattr.
Result<Value> choose(TemplateBudget& budget, const Value& input, const CallArgs& args, std::string_view name, bool keep,
                     bool by_attribute) {
  CallArgs rest = args;
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty()) return invalid_data(fmt::format("{}: the name of the attribute is missing", name));
    attribute = rest.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  std::string test;
  if (!rest.positional.empty()) {
    if (!rest.positional[0].is_string()) return invalid_data(fmt::format("{}: expected the name of a test", name));
    test = rest.positional[0].bytes();
    rest.positional.erase(rest.positional.begin());
  }
  HB_ASSIGN(const auto list, iterate_if_true(budget, input));
  std::vector<Value> out;
  for (const Value& v : list->items) {
    HB_TRY(budget.spend(1));
    Value subject = v;
    if (by_attribute) {
      HB_ASSIGN(subject, attribute_path(budget, v, attribute));
    }
    bool yes = truth(subject);
    if (!test.empty()) {
      HB_ASSIGN(yes, apply_test(budget, test, subject, rest));
    }
    if (yes == keep) out.push_back(v);
  }
  return budget.list(std::move(out), ListFlavor::kGenerator);
}
Result<Value> select_filter(TemplateBudget& b, const Value& v, const CallArgs& a) {
  return choose(b, v, a, "select", true, false);
}
Result<Value> reject_filter(TemplateBudget& b, const Value& v, const CallArgs& a) {
  return choose(b, v, a, "reject", false, false);
}
Result<Value> selectattr_filter(TemplateBudget& b, const Value& v, const CallArgs& a) {
  return choose(b, v, a, "selectattr", true, true);
}
Result<Value> rejectattr_filter(TemplateBudget& b, const Value& v, const CallArgs& a) {
  return choose(b, v, a, "rejectattr", false, true);
}

Result<Value> indent_filter(TemplateBudget& budget, const Value& input, const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("indent", args, {"width", "first", "blank"}));
  if (!input.is_string()) return invalid_data(fmt::format("indent: expected a string, found '{}'", type_name(input)));
  std::string indention(4, ' ');
  if (bound.get(0) != nullptr && bound.get(0)->is_string()) {
    indention = bound.get(0)->bytes();
  } else {
    HB_ASSIGN(const int64_t width, bound.integer(0, 4));
    if (width > 256) return resource_exhausted(fmt::format("indent: a width of {} is more than 256", width));
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  const bool blank = bound.flag(2, false);
  // Jinja adds a newline and splits, so that a last newline gives a last empty line.
  MarkedText closed = input.text();
  closed.append("\n");
  HB_ASSIGN(const std::vector<Value> lines, split_lines(budget, closed));
  TextBuilder out(budget);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) HB_TRY(out.append("\n"));
    const bool indented = i == 0 ? bound.flag(1, false) : blank || !lines[i].bytes().empty();
    if (indented) HB_TRY(out.append(indention));
    HB_TRY(out.append(lines[i].text()));
  }
  return std::move(out).value();
}

constexpr FilterEntry kFilters[] = {
    {"abs", abs_filter},
    {"capitalize", case_filter<CaseChange::kCapitalize>},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort_filter},
    {"first", first_filter},
    {"float", float_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"lower", case_filter<CaseChange::kLower>},
    {"map", map_filter},
    {"max", max_filter},
    {"min", min_filter},
    {"reject", reject_filter},
    {"rejectattr", rejectattr_filter},
    {"replace", replace_filter},
    {"reverse", reverse_filter},
    {"safe", string_filter},
    {"select", select_filter},
    {"selectattr", selectattr_filter},
    {"sort", sort_filter},
    {"string", string_filter},
    {"sum", sum_filter},
    {"title", case_filter<CaseChange::kTitleWords>},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"unique", unique_filter},
    {"upper", case_filter<CaseChange::kUpper>},
};

}  // namespace

Result<TemplateValue> apply_filter(TemplateBudget& budget, std::string_view name, const TemplateValue& input,
                                   const CallArgs& args) {
  for (const FilterEntry& f : kFilters) {
    if (f.name == name) return f.call(budget, input, args);
  }
  std::string known;
  for (const FilterEntry& f : kFilters) known += (known.empty() ? "" : ", ") + std::string(f.name);
  return unsupported(fmt::format("the filter {} is outside the template subset, which has {}", quote(name), known));
}

Result<BoundArgs> BoundArgs::bind(std::string_view function, const CallArgs& args,
                                  std::initializer_list<std::string_view> parameters, size_t required) {
  BoundArgs bound;
  bound.function_ = function;
  bound.parameters_.assign(parameters);
  if (args.positional.size() > parameters.size()) {
    return invalid_data(
        fmt::format("{}: takes at most {} arguments, found {}", function, parameters.size(), args.positional.size()));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) bound.given_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto at = std::find(bound.parameters_.begin(), bound.parameters_.end(), name);
    if (at == bound.parameters_.end())
      return invalid_data(fmt::format("{}: has no argument named {}", function, quote(name)));
    const auto i = static_cast<size_t>(at - bound.parameters_.begin());
    if (bound.given_[i] != nullptr)
      return invalid_data(fmt::format("{}: the argument {} is given twice", function, quote(name)));
    bound.given_[i] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound.given_[i] == nullptr)
      return invalid_data(fmt::format("{}: the argument '{}' is missing", function, bound.parameters_[i]));
  }
  return bound;
}

Result<std::string> BoundArgs::text(size_t i, std::string_view otherwise) const {
  if (given_[i] == nullptr) return std::string(otherwise);
  if (given_[i]->is_string()) return given_[i]->bytes();
  return invalid_data(
      fmt::format("{}: '{}' is '{}', expected a string", function_, parameters_[i], type_name(*given_[i])));
}

Result<int64_t> BoundArgs::integer(size_t i, int64_t otherwise) const {
  if (given_[i] == nullptr) return otherwise;
  if (given_[i]->is_integral()) return given_[i]->as_int();
  return invalid_data(
      fmt::format("{}: '{}' is '{}', expected an integer", function_, parameters_[i], type_name(*given_[i])));
}

}  // namespace halfbyte
