// A parsed template: one flat arena of nodes, so that building, walking and freeing it never recurses deeper than the
// parser's own limit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "text/template_lexer.h"
#include "text/template_value.h"

namespace halfbyte {

enum class NodeKind : uint8_t {
  // Statements. `text` is an index into constants or names where noted; children in [].
  kBlock,        // [statements]
  kData,         // text: constant
  kOutput,       // [expression]
  kIf,           // [test, block, test, block, ..., else block if the count is odd]
  kFor,          // [target, iterable, filter or kNothing, body, else or kNothing]; flag: recursive
  kSet,          // [target, expression]
  kSetBlock,     // [target, filter chain over kCaptured or kNothing, body]
  kMacro,        // text: name; [body, params...]
  kCallBlock,    // [call, body, params...]
  kFilterBlock,  // [filter chain over kCaptured, body]
  kWith,         // [body, target, value, target, value, ...]
  kScope,        // [body]: {% generation %}
  kBreak,
  kContinue,
  kParam,  // text: name; [default or kNothing]
  // Expressions.
  kNothing,
  kConst,         // text: constant
  kName,          // text: name
  kNamespaceRef,  // text: name of the namespace; extra: constant of the attribute (assignment target)
  kList,          // [items]
  kTuple,         // [items]
  kDict,          // [key, value, ...]
  kNot,           // [x]
  kNegate,        // [x]
  kPositive,      // [x]
  kBinary,        // flag: BinaryOp; [a, b]
  kConcat,        // [parts]
  kAnd,           // [parts]
  kOr,            // [parts]
  kCompare,       // [first, operand...]
  kOperand,       // flag: CompareOp; [x]
  kConditional,   // [test, then, else or kNothing]
  kAttribute,     // text: constant; [object]
  kItem,          // [object, index]
  kSlice,         // [start, stop, step], each may be kNothing
  kCall,          // [callee, args...]
  kKeyword,       // text: name constant; [value]
  kFilter,        // text: name constant; [input, args...]
  kTest,          // text: name constant; [input, args...]
  kCaptured,      // the text of the block that is being filtered
};

enum class BinaryOp : uint8_t { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
enum class CompareOp : uint8_t { kEqual, kNotEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kIn, kNotIn };

struct TemplateNode {
  NodeKind kind = NodeKind::kNothing;
  uint8_t flag = 0;
  uint32_t where = 0;  // offset in the source
  uint32_t text = 0;   // see NodeKind
  uint32_t extra = 0;  // kNamespaceRef: constant of the attribute
  uint32_t first = 0;  // children are links[first, first + count)
  uint32_t count = 0;
};

struct TemplateAst {
  explicit TemplateAst(TemplateSource s) : source(std::move(s)) {}
  TemplateSource source;
  std::vector<TemplateNode> nodes;
  std::vector<uint32_t> links;
  std::vector<TemplateValue> constants;
  std::vector<std::string> names;  // by name id; kLoopName and kCallerName are always 0 and 1
  uint32_t root = 0;

  const TemplateNode& node(uint32_t id) const { return nodes[id]; }
  uint32_t child(const TemplateNode& n, uint32_t i) const { return links[n.first + i]; }
};

inline constexpr uint32_t kLoopName = 0;
inline constexpr uint32_t kCallerName = 1;

}  // namespace halfbyte
