// The expression half of the template parser, in the order of Jinja's own grammar. Every recursion passes through a
// Nest, which counts it against max_depth; chains (a + b + c, x.y[0]|f) are loops here and lean left in the arena.
#pragma once

#include <optional>

#include "text/template_parse_state.h"

namespace halfbyte {

// Not for use alone: the statement parser is built on it. One parse, one thread.
class ExpressionParser : protected TemplateParseState {
 protected:
  using TemplateParseState::TemplateParseState;

  bool at_tuple_end(std::string_view extra_end) const;
  Result<uint32_t> parse_tuple(bool conditional = true, std::string_view extra_end = "", bool parentheses = false);
  Result<uint32_t> parse_or_nested();
  Result<uint32_t> parse_expression();
  Result<uint32_t> parse_or();
  Result<uint32_t> parse_and();
  Result<uint32_t> parse_not();
  std::optional<CompareOp> skip_compare();
  Result<uint32_t> parse_compare();
  uint32_t binary(BinaryOp op, uint32_t where, uint32_t a, uint32_t b);
  Result<uint32_t> parse_sum();
  Result<uint32_t> parse_concat();
  Result<uint32_t> parse_product();
  Result<uint32_t> parse_power();
  Result<uint32_t> parse_unary(bool filters);
  Result<uint32_t> parse_primary();
  Result<uint32_t> parse_name();
  Result<uint32_t> parse_number();
  Result<uint32_t> parse_list();
  Result<uint32_t> parse_dict();
  Result<uint32_t> parse_postfix(uint32_t value);
  Result<uint32_t> parse_attribute(uint32_t object);
  Result<uint32_t> parse_subscript(uint32_t object);
  Result<uint32_t> parse_subscribed();
  Status parse_arguments(NodeIds& parts);
  Result<uint32_t> parse_call(uint32_t callee);
  Result<uint32_t> parse_dotted_name(std::string_view what);
  Result<uint32_t> parse_filter(uint32_t input);
  Result<uint32_t> parse_filters(uint32_t value);
  Result<uint32_t> parse_test(uint32_t input);
  Result<uint32_t> parse_filters_and_tests(uint32_t value);
};

}  // namespace halfbyte
