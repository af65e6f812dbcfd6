// The tests of the template subset ("x is defined").
#include <fmt/format.h>

#include <algorithm>

#include "base/quote.h"
#include "text/template_calls.h"
#include "text/template_ops.h"

namespace halfbyte {
namespace {

using Value = TemplateValue;
using Test = Result<bool> (*)(TemplateBudget&, const Value& input, const CallArgs&);

struct TestEntry {
  std::string_view name;
  size_t arguments;
  Test call;
};

bool is_bool(const Value& v, bool wanted) {
  return v.kind() == TemplateKind::kBool && v.as_bool() == wanted;
}

template <CompareOp kOp>
Result<bool> compare_test(TemplateBudget& budget, const Value& v, const CallArgs& args) {
  return compare_op(budget, kOp, v, args.positional[0]);
}

Result<bool> modulo(TemplateBudget& budget, const Value& v, const Value& by, int64_t wanted) {
  HB_ASSIGN(const Value rest, binary_op(budget, BinaryOp::kModulo, v, by));
  return equal(budget, rest, Value::integer(wanted));
}

// str.islower() and str.isupper() of ASCII; text without letters is neither.
Result<bool> all_case(TemplateBudget& budget, const Value& v, bool upper) {
  if (!v.is_string())
    return unsupported("is lower and is upper of other than a string are outside the template subset");
  HB_TRY(budget.spend_bytes(v.bytes().size()));
  bool any = false;
  for (char c : v.bytes()) {
    if (static_cast<unsigned char>(c) >= 0x80) {
      return unsupported("is lower and is upper of text beyond ASCII are outside the template subset");
    }
    const bool is_upper = c >= 'A' && c <= 'Z', is_lower = c >= 'a' && c <= 'z';
    if (upper ? is_lower : is_upper) return false;
    any = any || is_upper || is_lower;
  }
  return any;
}

constexpr TestEntry kTests[] = {
    {"defined", 0, [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> { return !v.is_undefined(); }},
    {"undefined", 0, [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> { return v.is_undefined(); }},
    {"none", 0, [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> { return v.is_none(); }},
    {"string", 0, [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> { return v.is_string(); }},
    {"mapping", 0, [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> { return v.is_dict(); }},
    {"number", 0, [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> { return v.is_number(); }},
    {"boolean", 0,
     [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> { return v.kind() == TemplateKind::kBool; }},
    {"integer", 0,
     [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> { return v.kind() == TemplateKind::kInt; }},
    {"float", 0,
     [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> {
       return v.kind() == TemplateKind::kDouble;
     }},
    {"true", 0, [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> { return is_bool(v, true); }},
    {"false", 0, [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> { return is_bool(v, false); }},
    {"iterable", 0,
     [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> {
       return v.is_undefined() || v.is_string() || v.is_list() || v.is_dict();
     }},
    {"sequence", 0,
     [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> {
       return v.is_undefined() || v.is_string() || v.is_dict() ||
              (v.is_list() && v.list().flavor != ListFlavor::kGenerator);
     }},
    {"callable", 0,
     [](TemplateBudget&, const Value& v, const CallArgs&) -> Result<bool> {
       return v.kind() == TemplateKind::kCallable;
     }},
    {"odd", 0,
     [](TemplateBudget& b, const Value& v, const CallArgs&) -> Result<bool> {
       return modulo(b, v, Value::integer(2), 1);
     }},
    {"even", 0,
     [](TemplateBudget& b, const Value& v, const CallArgs&) -> Result<bool> {
       return modulo(b, v, Value::integer(2), 0);
     }},
    {"divisibleby", 1,
     [](TemplateBudget& b, const Value& v, const CallArgs& a) -> Result<bool> {
       return modulo(b, v, a.positional[0], 0);
     }},
    {"lower", 0,
     [](TemplateBudget& b, const Value& v, const CallArgs&) -> Result<bool> { return all_case(b, v, false); }},
    {"upper", 0,
     [](TemplateBudget& b, const Value& v, const CallArgs&) -> Result<bool> { return all_case(b, v, true); }},
    {"in", 1,
     [](TemplateBudget& b, const Value& v, const CallArgs& a) -> Result<bool> {
       return contains(b, a.positional[0], v);
     }},
    {"eq", 1, compare_test<CompareOp::kEqual>},
    {"==", 1, compare_test<CompareOp::kEqual>},
    {"equalto", 1, compare_test<CompareOp::kEqual>},
    {"ne", 1, compare_test<CompareOp::kNotEqual>},
    {"!=", 1, compare_test<CompareOp::kNotEqual>},
    {"lt", 1, compare_test<CompareOp::kLess>},
    {"<", 1, compare_test<CompareOp::kLess>},
    {"lessthan", 1, compare_test<CompareOp::kLess>},
    {"le", 1, compare_test<CompareOp::kLessEqual>},
    {"<=", 1, compare_test<CompareOp::kLessEqual>},
    {"gt", 1, compare_test<CompareOp::kGreater>},
    {">", 1, compare_test<CompareOp::kGreater>},
    {"greaterthan", 1, compare_test<CompareOp::kGreater>},
    {"ge", 1, compare_test<CompareOp::kGreaterEqual>},
    {">=", 1, compare_test<CompareOp::kGreaterEqual>},
};

}  // namespace

Result<bool> apply_test(TemplateBudget& budget, std::string_view name, const TemplateValue& input,
                        const CallArgs& args) {
  for (const TestEntry& t : kTests) {
    if (t.name != name) continue;
    if (!args.named.empty() || args.positional.size() != t.arguments) {
      return invalid_data(fmt::format("the test '{}' takes {} arguments", name, t.arguments));
    }
    return t.call(budget, input, args);
  }
  std::string known;
  for (const TestEntry& t : kTests) known += (known.empty() ? "" : ", ") + std::string(t.name);
  return unsupported(fmt::format("the test {} is outside the template subset, which has {}", quote(name), known));
}

}  // namespace halfbyte
