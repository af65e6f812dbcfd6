#include "text/template_parser.h"

#include <fmt/format.h>

#include <initializer_list>

#include "base/quote.h"
#include "text/template_expression.h"

namespace halfbyte {
namespace {

class Parser : ExpressionParser {
 public:
  Parser(TemplateAst& ast, std::vector<TemplateToken> tokens, uint32_t max_depth)
      : ExpressionParser(ast, std::move(tokens), max_depth) {}

  Status run() {
    HB_ASSIGN(ast_.root, parse_body({}));
    return {};
  }

 private:
  // --- statements ---
  // Statements up to a tag that begins with one of `ends` (that name is the current token then) or the end.
  Result<uint32_t> parse_body(std::initializer_list<std::string_view> ends) {
    const Nest nest(depth_);
    HB_TRY(check_depth());
    const uint32_t where = token().begin;
    NodeIds body;
    while (!at_kind(TokenKind::kEnd)) {
      if (at_kind(TokenKind::kData)) {
        body.push_back(
            make(NodeKind::kData, token().begin, {}, constant(TemplateValue::constant(std::string(text())))));
        advance();
      } else if (at_kind(TokenKind::kVariableBegin)) {
        const uint32_t at = token().begin;
        advance();
        HB_ASSIGN(const uint32_t value, parse_tuple());
        if (!at_kind(TokenKind::kVariableEnd)) return expected("'}}'");
        advance();
        body.push_back(make(NodeKind::kOutput, at, {value}));
      } else {
        advance();  // "{%"
        for (std::string_view end : ends) {
          if (at_name(end)) return make(NodeKind::kBlock, where, body);
        }
        HB_ASSIGN(const uint32_t statement, parse_statement());
        body.push_back(statement);
        if (!at_kind(TokenKind::kBlockEnd)) return expected("'%}'");
        advance();
      }
    }
    if (ends.size() > 0) {
      return error(fmt::format("the template ends inside a block: '{{% {} %}}' is missing", *(ends.end() - 1)));
    }
    return make(NodeKind::kBlock, where, body);
  }

  // "%}", statements, "{% end"; the end's name is consumed if `drop`.
  Result<uint32_t> parse_inner(std::initializer_list<std::string_view> ends, bool drop) {
    skip_operator(":");
    if (!at_kind(TokenKind::kBlockEnd)) return expected("'%}'");
    advance();
    HB_ASSIGN(const uint32_t body, parse_body(ends));
    if (drop) advance();
    return body;
  }

  Result<uint32_t> parse_statement() {
    if (!at_kind(TokenKind::kName)) return expected("the name of a statement");
    const uint32_t where = token().begin;
    const std::string_view name = text();
    if (name == "if") return parse_if();
    if (name == "for") return parse_for();
    if (name == "set") return parse_set();
    if (name == "macro") return parse_macro();
    if (name == "call") return parse_call_block();
    if (name == "filter") return parse_filter_block();
    if (name == "with") return parse_with();
    if (name == "generation") return parse_generation();
    if (name == "print") return parse_print();
    if (name == "break" || name == "continue") {
      if (loop_depth_ == 0) return error(fmt::format("'{}' outside a loop", name));
      advance();
      return make(name == "break" ? NodeKind::kBreak : NodeKind::kContinue, where);
    }
    for (std::string_view known :
         {"extends", "block", "include", "import", "from", "autoescape", "do", "debug", "trans"}) {
      if (name == known) return outside(where, fmt::format("the statement '{}' is", name));
    }
    return error("unknown statement " + quote(name));
  }

  Result<uint32_t> parse_if() {
    const uint32_t where = token().begin;
    NodeIds parts;
    while (true) {
      advance();  // if, elif
      HB_ASSIGN(const uint32_t test, parse_tuple(/*conditional=*/false));
      HB_ASSIGN(const uint32_t body, parse_inner({"elif", "else", "endif"}, /*drop=*/false));
      parts.push_back(test);
      parts.push_back(body);
      if (at_name("elif")) continue;
      if (skip_name("else")) {
        HB_ASSIGN(const uint32_t otherwise, parse_inner({"endif"}, /*drop=*/true));
        parts.push_back(otherwise);
      } else {
        advance();  // endif
      }
      return make(NodeKind::kIf, where, parts);
    }
  }

  Result<uint32_t> parse_for() {
    const uint32_t where = token().begin;
    advance();
    HB_ASSIGN(const uint32_t target, parse_target(/*with_tuple=*/true));
    if (!skip_name("in")) return expected("'in'");
    HB_ASSIGN(const uint32_t iterable, parse_tuple(/*conditional=*/false, "recursive"));
    uint32_t filter = nothing();
    if (skip_name("if")) {
      HB_ASSIGN(filter, parse_expression());
    }
    const bool recursive = skip_name("recursive");
    ++loop_depth_;
    HB_ASSIGN(const uint32_t body, parse_inner({"else", "endfor"}, /*drop=*/false));
    --loop_depth_;
    uint32_t otherwise = nothing();
    if (skip_name("else")) {
      HB_ASSIGN(otherwise, parse_inner({"endfor"}, /*drop=*/true));
    } else {
      advance();
    }
    return make(NodeKind::kFor, where, {target, iterable, filter, body, otherwise}, 0, recursive);
  }

  Result<uint32_t> parse_set() {
    const uint32_t where = token().begin;
    advance();
    HB_ASSIGN(const uint32_t target, parse_target(/*with_tuple=*/true));
    if (skip_operator("=")) {
      HB_ASSIGN(const uint32_t value, parse_tuple());
      return make(NodeKind::kSet, where, {target, value});
    }
    uint32_t filters = nothing();
    if (at_operator("|")) {
      HB_ASSIGN(filters, parse_filters(make(NodeKind::kCaptured, where)));
    }
    HB_ASSIGN(const uint32_t body, parse_inner({"endset"}, /*drop=*/true));
    return make(NodeKind::kSetBlock, where, {target, filters, body});
  }

  // "(a, b=1)" appended to `parts` as kParam nodes.
  Status parse_signature(NodeIds& parts) {
    HB_TRY(expect_operator("("));
    bool first = true, defaults = false;
    while (!at_operator(")")) {
      if (!first) HB_TRY(expect_operator(","));
      first = false;
      if (!at_kind(TokenKind::kName)) return expected("the name of a parameter");
      const uint32_t where = token().begin;
      const uint32_t name = name_id(text());
      advance();
      uint32_t value = nothing();
      if (skip_operator("=")) {
        defaults = true;
        HB_ASSIGN(value, parse_expression());
      } else if (defaults) {
        return error_at(where, "a parameter without a default follows one with a default");
      }
      parts.push_back(make(NodeKind::kParam, where, {value}, name));
    }
    advance();
    return {};
  }

  // The body of a macro: loops outside do not reach into it.
  Result<uint32_t> parse_closed_body(std::string_view end) {
    const int outer = std::exchange(loop_depth_, 0);
    auto body = parse_inner({end}, /*drop=*/true);
    loop_depth_ = outer;
    return body;
  }

  Result<uint32_t> parse_macro() {
    const uint32_t where = token().begin;
    advance();
    if (!at_kind(TokenKind::kName)) return expected("the name of the macro");
    const uint32_t name = name_id(text());
    advance();
    NodeIds parts{0};
    HB_TRY(parse_signature(parts));
    HB_ASSIGN(parts[0], parse_closed_body("endmacro"));
    return make(NodeKind::kMacro, where, parts, name);
  }

  Result<uint32_t> parse_call_block() {
    const uint32_t where = token().begin;
    advance();
    NodeIds parts{0, 0};
    if (at_operator("(")) HB_TRY(parse_signature(parts));
    HB_ASSIGN(parts[0], parse_expression());
    if (ast_.node(parts[0]).kind != NodeKind::kCall) return error_at(where, "expected a call in the call block");
    HB_ASSIGN(parts[1], parse_closed_body("endcall"));
    return make(NodeKind::kCallBlock, where, parts);
  }

  Result<uint32_t> parse_filter_block() {
    const uint32_t where = token().begin;
    advance();
    HB_ASSIGN(const uint32_t first, parse_filter(make(NodeKind::kCaptured, where)));
    HB_ASSIGN(const uint32_t chain, parse_filters(first));
    HB_ASSIGN(const uint32_t body, parse_inner({"endfilter"}, /*drop=*/true));
    return make(NodeKind::kFilterBlock, where, {chain, body});
  }

  Result<uint32_t> parse_with() {
    const uint32_t where = token().begin;
    advance();
    NodeIds parts{0};
    while (!at_kind(TokenKind::kBlockEnd)) {
      if (parts.size() > 1) HB_TRY(expect_operator(","));
      HB_ASSIGN(const uint32_t target, parse_target(/*with_tuple=*/true));
      HB_TRY(expect_operator("="));
      HB_ASSIGN(const uint32_t value, parse_expression());
      parts.push_back(target);
      parts.push_back(value);
    }
    HB_ASSIGN(parts[0], parse_inner({"endwith"}, /*drop=*/true));
    return make(NodeKind::kWith, where, parts);
  }

  // transformers' extension; it marks what the assistant said, the text is the body's.
  Result<uint32_t> parse_generation() {
    const uint32_t where = token().begin;
    advance();
    HB_ASSIGN(const uint32_t body, parse_closed_body("endgeneration"));
    return make(NodeKind::kScope, where, {body});
  }

  Result<uint32_t> parse_print() {
    const uint32_t where = token().begin;
    advance();
    NodeIds parts;
    while (!at_kind(TokenKind::kBlockEnd)) {
      if (!parts.empty()) HB_TRY(expect_operator(","));
      HB_ASSIGN(const uint32_t value, parse_expression());
      parts.push_back(make(NodeKind::kOutput, where, {value}));
    }
    return make(NodeKind::kBlock, where, parts);
  }

  static bool is_literal_name(std::string_view s) {
    return s == "true" || s == "false" || s == "none" || s == "True" || s == "False" || s == "None";
  }

  Result<uint32_t> parse_target_one() {
    const Nest nest(depth_);
    HB_TRY(check_depth());
    const uint32_t where = token().begin;
    if (skip_operator("(")) {
      HB_ASSIGN(const uint32_t inner, parse_target(/*with_tuple=*/true));
      HB_TRY(expect_operator(")"));
      return inner;
    }
    if (!at_kind(TokenKind::kName) || is_literal_name(text())) return expected("a name to assign to");
    const uint32_t name = name_id(text());
    advance();
    if (!skip_operator(".")) return make(NodeKind::kName, where, {}, name);
    if (!at_kind(TokenKind::kName)) return expected("the name of an attribute");
    const uint32_t ref = make(NodeKind::kNamespaceRef, where, {}, name);
    ast_.nodes[ref].extra = constant_text(text());
    advance();
    return ref;
  }

  Result<uint32_t> parse_target(bool with_tuple) {
    const uint32_t where = token().begin;
    HB_ASSIGN(const uint32_t first, parse_target_one());
    if (!with_tuple || !at_operator(",")) return first;
    NodeIds items{first};
    while (skip_operator(",")) {
      if (at_name("in") || at_operator("=") || at_operator(")") || at_kind(TokenKind::kBlockEnd)) break;
      HB_ASSIGN(const uint32_t next, parse_target_one());
      items.push_back(next);
    }
    return make(NodeKind::kTuple, where, items);
  }

  int loop_depth_ = 0;
};

}  // namespace

Result<std::unique_ptr<const TemplateAst>> parse_template(std::string_view source, const std::string& name,
                                                          const TemplateLimits& limits) {
  if (source.size() > limits.max_template_bytes) {
    return resource_exhausted(fmt::format("{}: the template has {} bytes, at most {} are read", name, source.size(),
                                          limits.max_template_bytes));
  }
  if (const auto bad = find_invalid_utf8(source)) {
    return invalid_data(fmt::format("{}: the template is not UTF-8 at byte {}", name, *bad));
  }
  auto ast = std::make_unique<TemplateAst>(TemplateSource(source, name));
  HB_ASSIGN(std::vector<TemplateToken> tokens, lex_template(ast->source));
  HB_TRY(Parser(*ast, std::move(tokens), limits.max_depth).run());
  return std::unique_ptr<const TemplateAst>(std::move(ast));
}

}  // namespace halfbyte
