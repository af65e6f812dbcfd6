#include "text/template_expression.h"

#include <charconv>

namespace halfbyte {

// --- expressions ---
bool ExpressionParser::at_tuple_end(std::string_view extra_end) const {
  return at_kind(TokenKind::kVariableEnd) || at_kind(TokenKind::kBlockEnd) || at_operator(")") ||
         (!extra_end.empty() && at_name(extra_end));
}

// An expression, or several with commas: a tuple.
Result<uint32_t> ExpressionParser::parse_tuple(bool conditional, std::string_view extra_end, bool parentheses) {
  const uint32_t where = token().begin;
  NodeIds items;
  bool tuple = false;
  while (true) {
    if (!items.empty()) HB_TRY(expect_operator(","));
    if (at_tuple_end(extra_end)) break;
    HB_ASSIGN(const uint32_t item, conditional ? parse_expression() : parse_or_nested());
    items.push_back(item);
    if (!at_operator(",")) break;
    tuple = true;
  }
  if (tuple || (items.empty() && parentheses)) return make(NodeKind::kTuple, where, items);
  if (items.empty()) return expected("an expression");
  return items[0];
}

Result<uint32_t> ExpressionParser::parse_or_nested() {
  const Nest nest(depth_);
  HB_TRY(check_depth());
  return parse_or();
}

Result<uint32_t> ExpressionParser::parse_expression() {
  const Nest nest(depth_);
  HB_TRY(check_depth());
  HB_ASSIGN(uint32_t value, parse_or());
  while (at_name("if")) {
    const uint32_t where = token().begin;
    advance();
    HB_ASSIGN(const uint32_t test, parse_or());
    uint32_t otherwise = nothing();
    if (skip_name("else")) {
      HB_ASSIGN(otherwise, parse_expression());
    }
    value = make(NodeKind::kConditional, where, {test, value, otherwise});
  }
  return value;
}

Result<uint32_t> ExpressionParser::parse_or() {
  HB_ASSIGN(const uint32_t first, parse_and());
  if (!at_name("or")) return first;
  NodeIds parts{first};
  const uint32_t where = token().begin;
  while (skip_name("or")) {
    HB_ASSIGN(const uint32_t next, parse_and());
    parts.push_back(next);
  }
  return make(NodeKind::kOr, where, parts);
}

Result<uint32_t> ExpressionParser::parse_and() {
  HB_ASSIGN(const uint32_t first, parse_not());
  if (!at_name("and")) return first;
  NodeIds parts{first};
  const uint32_t where = token().begin;
  while (skip_name("and")) {
    HB_ASSIGN(const uint32_t next, parse_not());
    parts.push_back(next);
  }
  return make(NodeKind::kAnd, where, parts);
}

Result<uint32_t> ExpressionParser::parse_not() {
  if (!at_name("not")) return parse_compare();
  const Nest nest(depth_);
  HB_TRY(check_depth());
  const uint32_t where = token().begin;
  advance();
  HB_ASSIGN(const uint32_t inner, parse_not());
  return make(NodeKind::kNot, where, {inner});
}

// The comparison at the current token, if there is one; moves behind it.
std::optional<CompareOp> ExpressionParser::skip_compare() {
  static constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual}};
  for (const auto& [op, kind] : kOps) {
    if (skip_operator(op)) return kind;
  }
  if (skip_name("in")) return CompareOp::kIn;
  if (at_name("not") && at_name("in", 1)) {
    advance();
    advance();
    return CompareOp::kNotIn;
  }
  return std::nullopt;
}

Result<uint32_t> ExpressionParser::parse_compare() {
  const uint32_t where = token().begin;
  HB_ASSIGN(const uint32_t first, parse_sum());
  NodeIds parts{first};
  while (true) {
    const uint32_t at = token().begin;
    const auto op = skip_compare();
    if (!op) break;
    HB_ASSIGN(const uint32_t next, parse_sum());
    parts.push_back(make(NodeKind::kOperand, at, {next}, 0, static_cast<uint8_t>(*op)));
  }
  return parts.size() == 1 ? first : make(NodeKind::kCompare, where, parts);
}

uint32_t ExpressionParser::binary(BinaryOp op, uint32_t where, uint32_t a, uint32_t b) {
  return make(NodeKind::kBinary, where, {a, b}, 0, static_cast<uint8_t>(op));
}

Result<uint32_t> ExpressionParser::parse_sum() {
  HB_ASSIGN(uint32_t left, parse_concat());
  while (at_operator("+") || at_operator("-")) {
    const BinaryOp op = text() == "+" ? BinaryOp::kAdd : BinaryOp::kSubtract;
    const uint32_t where = token().begin;
    advance();
    HB_ASSIGN(const uint32_t right, parse_concat());
    left = binary(op, where, left, right);
  }
  return left;
}

Result<uint32_t> ExpressionParser::parse_concat() {
  const uint32_t where = token().begin;
  HB_ASSIGN(const uint32_t first, parse_product());
  if (!at_operator("~")) return first;
  NodeIds parts{first};
  while (skip_operator("~")) {
    HB_ASSIGN(const uint32_t next, parse_product());
    parts.push_back(next);
  }
  return make(NodeKind::kConcat, where, parts);
}

Result<uint32_t> ExpressionParser::parse_product() {
  static constexpr std::pair<std::string_view, BinaryOp> kOps[] = {
      {"*", BinaryOp::kMultiply}, {"/", BinaryOp::kDivide}, {"//", BinaryOp::kFloorDivide}, {"%", BinaryOp::kModulo}};
  HB_ASSIGN(uint32_t left, parse_power());
  while (true) {
    const uint32_t where = token().begin;
    std::optional<BinaryOp> op;
    for (const auto& [symbol, kind] : kOps) {
      if (!op && skip_operator(symbol)) op = kind;
    }
    if (!op) return left;
    HB_ASSIGN(const uint32_t right, parse_power());
    left = binary(*op, where, left, right);
  }
}

Result<uint32_t> ExpressionParser::parse_power() {
  HB_ASSIGN(uint32_t left, parse_unary(/*filters=*/true));
  while (at_operator("**")) {
    const uint32_t where = token().begin;
    advance();
    HB_ASSIGN(const uint32_t right, parse_unary(/*filters=*/true));
    left = binary(BinaryOp::kPower, where, left, right);
  }
  return left;
}

Result<uint32_t> ExpressionParser::parse_unary(bool filters) {
  uint32_t value = 0;
  if (at_operator("-") || at_operator("+")) {
    const Nest nest(depth_);
    HB_TRY(check_depth());
    const NodeKind kind = text() == "-" ? NodeKind::kNegate : NodeKind::kPositive;
    const uint32_t where = token().begin;
    advance();
    HB_ASSIGN(const uint32_t inner, parse_unary(/*filters=*/false));
    value = make(kind, where, {inner});
  } else {
    HB_ASSIGN(value, parse_primary());
  }
  HB_ASSIGN(value, parse_postfix(value));
  if (!filters) return value;
  return parse_filters_and_tests(value);
}

Result<uint32_t> ExpressionParser::parse_primary() {
  const uint32_t where = token().begin;
  switch (token().kind) {
    case TokenKind::kName: return parse_name();
    case TokenKind::kString: {
      std::string value;
      while (at_kind(TokenKind::kString)) {
        HB_ASSIGN(const std::string part, unescape_string(ast_.source, token()));
        value += part;
        advance();
      }
      return make(NodeKind::kConst, where, {}, constant(TemplateValue::constant(std::move(value))));
    }
    case TokenKind::kInt:
    case TokenKind::kFloat: return parse_number();
    default: break;
  }
  if (skip_operator("(")) {
    HB_ASSIGN(const uint32_t inner, parse_tuple(/*conditional=*/true, "", /*parentheses=*/true));
    HB_TRY(expect_operator(")"));
    return inner;
  }
  if (at_operator("[")) return parse_list();
  if (at_operator("{")) return parse_dict();
  return expected("an expression");
}

Result<uint32_t> ExpressionParser::parse_name() {
  const uint32_t where = token().begin;
  const std::string_view name = text();
  advance();
  if (name == "true" || name == "True")
    return make(NodeKind::kConst, where, {}, constant(TemplateValue::boolean(true)));
  if (name == "false" || name == "False") {
    return make(NodeKind::kConst, where, {}, constant(TemplateValue::boolean(false)));
  }
  if (name == "none" || name == "None") return make(NodeKind::kConst, where, {}, constant(TemplateValue::none()));
  return make(NodeKind::kName, where, {}, name_id(name));
}

Result<uint32_t> ExpressionParser::parse_number() {
  const uint32_t where = token().begin;
  std::string digits;
  for (char c : text()) {
    if (c != '_') digits += c;
  }
  const bool is_float = at_kind(TokenKind::kFloat);
  advance();
  const char* end = digits.data() + digits.size();
  if (is_float) {
    double value = 0;
    const auto read = std::from_chars(digits.data(), end, value);
    if (read.ec != std::errc() || read.ptr != end)
      return error_at(where, fmt::format("the number {} is out of range", digits));
    return make(NodeKind::kConst, where, {}, constant(TemplateValue::real(value)));
  }
  const char base = digits.size() > 2 ? static_cast<char>(digits[1] | 0x20) : '\0';
  const int radix = base == 'x' ? 16 : base == 'o' ? 8 : base == 'b' ? 2 : 10;
  int64_t value = 0;
  const auto read = std::from_chars(digits.data() + (radix == 10 ? 0 : 2), end, value, radix);
  if (read.ec != std::errc() || read.ptr != end)
    return error_at(where, fmt::format("the number {} does not fit 64 bits", digits));
  return make(NodeKind::kConst, where, {}, constant(TemplateValue::integer(value)));
}

Result<uint32_t> ExpressionParser::parse_list() {
  const uint32_t where = token().begin;
  advance();
  NodeIds items;
  while (!at_operator("]")) {
    if (!items.empty()) HB_TRY(expect_operator(","));
    if (at_operator("]")) break;
    HB_ASSIGN(const uint32_t item, parse_expression());
    items.push_back(item);
  }
  advance();
  return make(NodeKind::kList, where, items);
}

Result<uint32_t> ExpressionParser::parse_dict() {
  const uint32_t where = token().begin;
  advance();
  NodeIds items;
  while (!at_operator("}")) {
    if (!items.empty()) HB_TRY(expect_operator(","));
    if (at_operator("}")) break;
    HB_ASSIGN(const uint32_t key, parse_expression());
    HB_TRY(expect_operator(":"));
    HB_ASSIGN(const uint32_t value, parse_expression());
    items.push_back(key);
    items.push_back(value);
  }
  advance();
  return make(NodeKind::kDict, where, items);
}

Result<uint32_t> ExpressionParser::parse_postfix(uint32_t value) {
  while (true) {
    if (at_operator(".")) {
      HB_ASSIGN(value, parse_attribute(value));
    } else if (at_operator("[")) {
      HB_ASSIGN(value, parse_subscript(value));
    } else if (at_operator("(")) {
      HB_ASSIGN(value, parse_call(value));
    } else {
      return value;
    }
  }
}

Result<uint32_t> ExpressionParser::parse_attribute(uint32_t object) {
  const uint32_t where = token().begin;
  advance();
  if (at_kind(TokenKind::kInt)) {
    HB_ASSIGN(const uint32_t index, parse_number());
    return make(NodeKind::kItem, where, {object, index});
  }
  if (!at_kind(TokenKind::kName)) return expected("the name of an attribute");
  const uint32_t name = constant_text(text());
  advance();
  return make(NodeKind::kAttribute, where, {object}, name);
}

Result<uint32_t> ExpressionParser::parse_subscript(uint32_t object) {
  const uint32_t where = token().begin;
  advance();
  if (at_operator("]")) return expected("an index");
  HB_ASSIGN(const uint32_t index, parse_subscribed());
  if (at_operator(",")) return outside(where, "an index with a comma is");
  HB_TRY(expect_operator("]"));
  return make(NodeKind::kItem, where, {object, index});
}

Result<uint32_t> ExpressionParser::parse_subscribed() {
  const uint32_t where = token().begin;
  NodeIds parts{0, 0, 0};
  if (at_operator(":")) {
    parts[0] = nothing();
  } else {
    HB_ASSIGN(parts[0], parse_expression());
    if (!at_operator(":")) return parts[0];
  }
  advance();
  const auto part = [&]() -> Result<uint32_t> {
    if (at_operator(":") || at_operator("]") || at_operator(",")) return nothing();
    return parse_expression();
  };
  HB_ASSIGN(parts[1], part());
  parts[2] = nothing();
  if (skip_operator(":")) {
    HB_ASSIGN(parts[2], part());
  }
  return make(NodeKind::kSlice, where, parts);
}

// "(a, b, c=1)" appended to `parts`.
Status ExpressionParser::parse_arguments(NodeIds& parts) {
  const uint32_t where = token().begin;
  HB_TRY(expect_operator("("));
  bool first = true, keywords = false;
  while (!at_operator(")")) {
    if (!first) {
      HB_TRY(expect_operator(","));
      if (at_operator(")")) break;
    }
    first = false;
    if (at_operator("*") || at_operator("**"))
      return outside(token().begin, fmt::format("'{}' before an argument is", text()));
    if (at_kind(TokenKind::kName) && at_operator("=", 1)) {
      const uint32_t at = token().begin;
      const uint32_t name = constant_text(text());
      advance();
      advance();
      HB_ASSIGN(const uint32_t value, parse_expression());
      parts.push_back(make(NodeKind::kKeyword, at, {value}, name));
      keywords = true;
    } else {
      if (keywords) return error_at(where, "a positional argument follows a named one");
      HB_ASSIGN(const uint32_t value, parse_expression());
      parts.push_back(value);
    }
  }
  advance();
  return {};
}

Result<uint32_t> ExpressionParser::parse_call(uint32_t callee) {
  const uint32_t where = token().begin;
  NodeIds parts{callee};
  HB_TRY(parse_arguments(parts));
  return make(NodeKind::kCall, where, parts);
}

// A name with dots, as filters and tests have.
Result<uint32_t> ExpressionParser::parse_dotted_name(std::string_view what) {
  if (!at_kind(TokenKind::kName)) return expected(what);
  std::string name(text());
  advance();
  while (skip_operator(".")) {
    if (!at_kind(TokenKind::kName)) return expected(what);
    name += "." + std::string(text());
    advance();
  }
  return constant_text(name);
}

// A filter's name and arguments (after the "|").
Result<uint32_t> ExpressionParser::parse_filter(uint32_t input) {
  const uint32_t where = token().begin;
  HB_ASSIGN(const uint32_t name, parse_dotted_name("the name of a filter"));
  NodeIds parts{input};
  if (at_operator("(")) HB_TRY(parse_arguments(parts));
  return make(NodeKind::kFilter, where, parts, name);
}

Result<uint32_t> ExpressionParser::parse_filters(uint32_t value) {
  while (skip_operator("|")) {
    HB_ASSIGN(value, parse_filter(value));
  }
  return value;
}

Result<uint32_t> ExpressionParser::parse_test(uint32_t input) {
  const uint32_t where = token().begin;
  advance();  // "is"
  const bool negated = skip_name("not");
  HB_ASSIGN(const uint32_t name, parse_dotted_name("the name of a test"));
  NodeIds parts{input};
  const bool keyword = at_name("else") || at_name("or") || at_name("and");
  const bool bare_argument = at_kind(TokenKind::kName) || at_kind(TokenKind::kString) || at_kind(TokenKind::kInt) ||
                             at_kind(TokenKind::kFloat) || at_operator("[") || at_operator("{");
  if (at_operator("(")) {
    HB_TRY(parse_arguments(parts));
  } else if (bare_argument && !keyword) {
    if (at_name("is")) return error("tests cannot be chained with 'is'");
    HB_ASSIGN(uint32_t argument, parse_primary());
    HB_ASSIGN(argument, parse_postfix(argument));
    parts.push_back(argument);
  }
  const uint32_t test = make(NodeKind::kTest, where, parts, name);
  return negated ? make(NodeKind::kNot, where, {test}) : test;
}

Result<uint32_t> ExpressionParser::parse_filters_and_tests(uint32_t value) {
  while (true) {
    if (skip_operator("|")) {
      HB_ASSIGN(value, parse_filter(value));
    } else if (at_name("is")) {
      HB_ASSIGN(value, parse_test(value));
    } else if (at_operator("(")) {
      HB_ASSIGN(value, parse_call(value));
    } else {
      return value;
    }
  }
}

}  // namespace halfbyte
