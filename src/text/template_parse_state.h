// What the statement and expression parsers share: the token at hand, the arena that nodes go to, the count of nesting.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/quote.h"
#include "text/template_ast.h"

namespace halfbyte {

using NodeIds = std::vector<uint32_t>;

class TemplateParseState {
 protected:
  TemplateParseState(TemplateAst& ast, std::vector<TemplateToken> tokens, uint32_t max_depth)
      : ast_(ast), tokens_(std::move(tokens)), max_depth_(max_depth) {
    name_id("loop");
    name_id("caller");
  }

  // --- tokens ---
  const TemplateToken& token(size_t ahead = 0) const { return tokens_[std::min(index_ + ahead, tokens_.size() - 1)]; }
  std::string_view text(size_t ahead = 0) const { return ast_.source.text(token(ahead)); }
  bool at_kind(TokenKind kind) const { return token().kind == kind; }
  bool at_operator(std::string_view op, size_t ahead = 0) const {
    return token(ahead).kind == TokenKind::kOperator && text(ahead) == op;
  }
  bool at_name(std::string_view name, size_t ahead = 0) const {
    return token(ahead).kind == TokenKind::kName && text(ahead) == name;
  }
  void advance() { index_ = std::min(index_ + 1, tokens_.size() - 1); }
  bool skip_operator(std::string_view op) {
    if (!at_operator(op)) return false;
    advance();
    return true;
  }
  bool skip_name(std::string_view name) {
    if (!at_name(name)) return false;
    advance();
    return true;
  }
  std::string describe() const {
    switch (token().kind) {
      case TokenKind::kEnd: return "the end of the template";
      case TokenKind::kVariableEnd:
      case TokenKind::kBlockEnd: return "the end of the tag";
      default: return quote(text());
    }
  }
  Status error(const std::string& message) const { return ast_.source.error(token().begin, message); }
  Status error_at(uint32_t where, const std::string& message) const { return ast_.source.error(where, message); }
  Status expected(std::string_view what) const { return error(fmt::format("expected {}, found {}", what, describe())); }
  Status expect_operator(std::string_view op) {
    if (!skip_operator(op)) return expected(fmt::format("'{}'", op));
    return {};
  }
  Status outside(uint32_t where, const std::string& what) const {
    return unsupported(ast_.source.where(where) + ": " + what + " outside the template subset");
  }

  // --- arena ---
  uint32_t make(NodeKind kind, uint32_t where, const NodeIds& children = {}, uint32_t text = 0, uint8_t flag = 0) {
    TemplateNode n;
    n.kind = kind;
    n.flag = flag;
    n.where = where;
    n.text = text;
    n.first = static_cast<uint32_t>(ast_.links.size());
    n.count = static_cast<uint32_t>(children.size());
    ast_.links.insert(ast_.links.end(), children.begin(), children.end());
    ast_.nodes.push_back(n);
    return static_cast<uint32_t>(ast_.nodes.size() - 1);
  }
  uint32_t nothing() { return make(NodeKind::kNothing, token().begin); }
  uint32_t constant(TemplateValue value) {
    ast_.constants.push_back(std::move(value));
    return static_cast<uint32_t>(ast_.constants.size() - 1);
  }
  uint32_t constant_text(std::string_view s) {
    const auto [it, added] = constant_ids_.try_emplace(std::string(s), 0);
    if (added) it->second = constant(TemplateValue::constant(std::string(s)));
    return it->second;
  }
  uint32_t name_id(std::string_view s) {
    const auto [it, added] = name_ids_.try_emplace(std::string(s), static_cast<uint32_t>(ast_.names.size()));
    if (added) ast_.names.emplace_back(s);
    return it->second;
  }

  // Counts one level of recursion.
  struct Nest {
    explicit Nest(uint32_t& depth) : depth_(depth) { ++depth_; }
    ~Nest() { --depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;
    uint32_t& depth_;
  };
  Status check_depth() const {
    if (depth_ <= max_depth_) return {};
    return resource_exhausted(fmt::format("{}: nested deeper than {}", ast_.source.where(token().begin), max_depth_));
  }

  TemplateAst& ast_;
  std::vector<TemplateToken> tokens_;
  size_t index_ = 0;
  uint32_t max_depth_, depth_ = 0;
  std::unordered_map<std::string, uint32_t> name_ids_, constant_ids_;
};

}  // namespace halfbyte
