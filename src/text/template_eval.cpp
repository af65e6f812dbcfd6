#include "text/template_eval.h"

#include <fmt/format.h>

#include "base/quote.h"
#include "text/template_ops.h"
#include "text/template_print.h"

namespace halfbyte {
namespace {

// Scopes with fewer variables are searched one by one.
constexpr size_t kScopeIndexFrom = 16;
// Levels of eval() and exec() on the C++ stack: each of max_depth source levels takes at most a few. 400 levels stay
// below 2 MB of stack under the sanitizers (tests/text/template_hostile_test.cpp runs at the limit).
constexpr uint32_t kStackLevelsPerDepth = 4;

}  // namespace

const TemplateValue* TemplateScope::find(uint32_t name) const {
  if (variables_.size() < kScopeIndexFrom) {
    for (const auto& [id, value] : variables_) {
      if (id == name) return &value;
    }
    return nullptr;
  }
  const auto it = index_.find(name);
  return it == index_.end() ? nullptr : &variables_[it->second].second;
}

void TemplateScope::set(uint32_t name, TemplateValue value) {
  if (const TemplateValue* old = find(name); old != nullptr) {
    *const_cast<TemplateValue*>(old) = std::move(value);
    return;
  }
  variables_.emplace_back(name, std::move(value));
  if (variables_.size() == kScopeIndexFrom) {
    for (size_t i = 0; i < variables_.size(); ++i) index_.emplace(variables_[i].first, i);
  } else if (variables_.size() > kScopeIndexFrom) {
    index_.emplace(name, variables_.size() - 1);
  }
}

TemplateEvaluator::TemplateEvaluator(const TemplateAst& ast, TemplateBudget& budget, std::optional<int64_t> now_unix)
    : ast_(ast), budget_(budget), now_unix_(now_unix) {
  for (const char* name : {"range", "namespace", "dict", "raise_exception", "strftime_now"}) {
    TemplateCallable f;
    f.name = name;
    globals_.emplace(name, TemplateValue(std::make_shared<const TemplateCallable>(std::move(f))));
  }
}

TemplateEvaluator::~TemplateEvaluator() = default;

Status TemplateEvaluator::enter(uint32_t where) {
  if (depth_ > budget_.limits().max_depth * kStackLevelsPerDepth) {
    return fail(where, resource_exhausted("blocks, expressions and macro calls nest too deep"));
  }
  Status spent = budget_.spend(1);
  return spent.ok() ? spent : fail(where, spent);
}

// Adds where it happened, unless an inner node has said so: the first failure ends the rendering.
Status TemplateEvaluator::fail(uint32_t where, Status status) {
  if (std::exchange(located_, true)) return status;
  return std::move(status).with_context(ast_.source.where(where));
}

Result<MarkedText> TemplateEvaluator::run() {
  Block root(*this, nullptr);
  TextBuilder out(budget_);
  scope_ = &root.scope();
  out_ = &out;
  Status status = exec_block(ast_.root);
  out_ = nullptr;
  scope_ = nullptr;
  if (!status.ok()) return status;
  return std::move(out).take();
}

// --- statements ---

Status TemplateEvaluator::exec(uint32_t id) {
  const TemplateNode& n = ast_.node(id);
  const Depth level(depth_);
  HB_TRY(enter(n.where));
  switch (n.kind) {
    case NodeKind::kBlock: return exec_block(id);
    case NodeKind::kData: {
      Status s = out_->append(ast_.constants[n.text].text());
      return s.ok() ? s : fail(n.where, s);
    }
    case NodeKind::kOutput: {
      HB_ASSIGN(const TemplateValue value, eval(ast_.child(n, 0)));
      Status s = append_str(budget_, value, *out_);
      return s.ok() ? s : fail(n.where, s);
    }
    case NodeKind::kIf: return exec_if(n);
    case NodeKind::kFor: return exec_for(n);
    case NodeKind::kSet: return exec_set(n);
    case NodeKind::kSetBlock: return exec_set_block(n);
    case NodeKind::kMacro: return exec_macro(n, id);
    case NodeKind::kCallBlock: return exec_call_block(n, id);
    case NodeKind::kFilterBlock: return exec_filter_block(n);
    case NodeKind::kWith: return exec_with(n);
    case NodeKind::kScope: {
      Block block(*this, scope_);
      return exec_in(block.scope(), ast_.child(n, 0));
    }
    case NodeKind::kBreak: flow_ = Flow::kBreak; return {};
    case NodeKind::kContinue: flow_ = Flow::kContinue; return {};
    default: return internal_error(ast_.source.where(n.where) + ": not a statement");
  }
}

Status TemplateEvaluator::exec_block(uint32_t id) {
  const TemplateNode& n = ast_.node(id);
  for (uint32_t i = 0; i < n.count && flow_ == Flow::kNormal; ++i) HB_TRY(exec(ast_.child(n, i)));
  return {};
}

Status TemplateEvaluator::exec_in(TemplateScope& scope, uint32_t body) {
  TemplateScope* outer = std::exchange(scope_, &scope);
  Status s = exec_block(body);
  scope_ = outer;
  return s;
}

Status TemplateEvaluator::exec_if(const TemplateNode& n) {
  uint32_t i = 0;
  for (; i + 1 < n.count; i += 2) {
    HB_ASSIGN(const TemplateValue test, eval(ast_.child(n, i)));
    if (truth(test)) return exec_block(ast_.child(n, i + 1));
  }
  return i < n.count ? exec_block(ast_.child(n, i)) : Status();
}

Status TemplateEvaluator::exec_for(const TemplateNode& n) {
  HB_ASSIGN(const TemplateValue iterable, eval(ast_.child(n, 1)));
  const auto id = static_cast<uint32_t>(&n - ast_.nodes.data());
  return run_loop(id, iterable, scope_, 1);
}

Result<std::shared_ptr<const TemplateList>> TemplateEvaluator::filtered(const TemplateNode& n,
                                                                        std::shared_ptr<const TemplateList> items) {
  const uint32_t filter = ast_.child(n, 2);
  if (ast_.node(filter).kind == NodeKind::kNothing) return items;
  std::vector<TemplateValue> kept;
  TemplateScope* outer = scope_;
  for (const TemplateValue& item : items->items) {
    HB_TRY(enter(n.where));
    TemplateScope scope(outer);
    scope_ = &scope;
    Status s = assign(ast_.child(n, 0), item);
    Result<TemplateValue> keep = s.ok() ? eval(filter) : Result<TemplateValue>(s);
    scope_ = outer;
    if (!keep.ok()) return keep.status();
    if (truth(*keep)) kept.push_back(item);
  }
  HB_ASSIGN(const TemplateValue list, budget_.list(std::move(kept)));
  return list.shared_list();
}

Status TemplateEvaluator::run_loop(uint32_t for_node, const TemplateValue& iterable, TemplateScope* scope,
                                   int64_t depth) {
  const TemplateNode& n = ast_.node(for_node);
  auto items = iterate(budget_, iterable);
  if (!items.ok()) return fail(n.where, items.status());
  TemplateScope* outer = std::exchange(scope_, scope);
  auto kept = filtered(n, std::move(*items));
  Status status = kept.status();
  if (status.ok() && (*kept)->items.empty()) {
    const uint32_t otherwise = ast_.child(n, 4);
    if (ast_.node(otherwise).kind != NodeKind::kNothing) status = exec_block(otherwise);
  } else if (status.ok()) {
    auto loop = std::make_shared<TemplateLoop>();
    loop->items = *kept;
    loop->depth = depth;
    loop->for_node = for_node;
    loop->scope = scope;
    loop->recursive = n.flag != 0;
    // loop(...) may be called after the block has ended, through a namespace: its scope must live on.
    if (loop->recursive) status = capture_scope(scope);
    TemplateCallable callable;
    callable.kind = CallableKind::kLoop;
    callable.name = "loop";
    callable.loop = loop;
    auto value = status.ok() ? make_callable(std::move(callable)) : Result<TemplateValue>(status);
    status = value.ok() ? loop_body(n, loop, *value) : fail(n.where, value.status());
  }
  scope_ = outer;
  return status;
}

Status TemplateEvaluator::loop_body(const TemplateNode& n, const std::shared_ptr<TemplateLoop>& loop,
                                    const TemplateValue& loop_value) {
  for (loop->index = 0; loop->index < loop->items->items.size(); ++loop->index) {
    HB_TRY(enter(n.where));
    Block block(*this, scope_);
    block.scope().set(kLoopName, loop_value);
    TemplateScope* outer = std::exchange(scope_, &block.scope());
    Status s = assign(ast_.child(n, 0), loop->items->items[loop->index]);
    scope_ = outer;
    HB_TRY(s);
    HB_TRY(exec_in(block.scope(), ast_.child(n, 3)));
    if (std::exchange(flow_, Flow::kNormal) == Flow::kBreak) break;
  }
  return {};
}

Status TemplateEvaluator::exec_set(const TemplateNode& n) {
  HB_ASSIGN(TemplateValue value, eval(ast_.child(n, 1)));
  return assign(ast_.child(n, 0), std::move(value));
}

Result<TemplateValue> TemplateEvaluator::capture(const std::function<Status()>& body) {
  TextBuilder out(budget_);
  TextBuilder* outer = std::exchange(out_, &out);
  Status s = body();
  out_ = outer;
  if (!s.ok()) return s;
  return std::move(out).value();
}

Status TemplateEvaluator::exec_set_block(const TemplateNode& n) {
  Block block(*this, scope_);
  auto text = capture([&] { return exec_in(block.scope(), ast_.child(n, 2)); });
  if (!text.ok()) return fail(n.where, text.status());
  const uint32_t filters = ast_.child(n, 1);
  if (ast_.node(filters).kind == NodeKind::kNothing) return assign(ast_.child(n, 0), std::move(*text));
  const TemplateValue* outer = std::exchange(captured_, &*text);
  auto value = eval(filters);
  captured_ = outer;
  if (!value.ok()) return value.status();
  return assign(ast_.child(n, 0), std::move(*value));
}

Status TemplateEvaluator::exec_filter_block(const TemplateNode& n) {
  Block block(*this, scope_);
  auto text = capture([&] { return exec_in(block.scope(), ast_.child(n, 1)); });
  if (!text.ok()) return fail(n.where, text.status());
  const TemplateValue* outer = std::exchange(captured_, &*text);
  auto value = eval(ast_.child(n, 0));
  captured_ = outer;
  if (!value.ok()) return value.status();
  Status s = append_str(budget_, *value, *out_);
  return s.ok() ? s : fail(n.where, s);
}

Status TemplateEvaluator::exec_macro(const TemplateNode& n, uint32_t id) {
  HB_TRY(capture_scope(scope_));
  TemplateCallable macro;
  macro.kind = CallableKind::kMacro;
  macro.name = ast_.names[n.text];
  macro.node = id;
  macro.scope = scope_;
  auto value = make_callable(std::move(macro));
  if (!value.ok()) return fail(n.where, value.status());
  scope_->set(n.text, std::move(*value));
  return {};
}

Status TemplateEvaluator::exec_call_block(const TemplateNode& n, uint32_t id) {
  HB_TRY(capture_scope(scope_));
  TemplateCallable caller;
  caller.kind = CallableKind::kMacro;
  caller.name = "caller";
  caller.node = id;
  caller.scope = scope_;
  auto caller_value = make_callable(std::move(caller));
  if (!caller_value.ok()) return fail(n.where, caller_value.status());
  const TemplateNode& call_node = ast_.node(ast_.child(n, 0));
  HB_ASSIGN(const TemplateValue callee, eval(ast_.child(call_node, 0)));
  HB_ASSIGN(const CallArgs args, eval_args(call_node));
  auto value = call(callee, args, &*caller_value);
  if (!value.ok()) return fail(n.where, value.status());
  Status s = append_str(budget_, *value, *out_);
  return s.ok() ? s : fail(n.where, s);
}

Status TemplateEvaluator::exec_with(const TemplateNode& n) {
  Block block(*this, scope_);
  // The values see the outer variables only.
  for (uint32_t i = 1; i + 1 < n.count; i += 2) {
    HB_ASSIGN(TemplateValue value, eval(ast_.child(n, i + 1)));
    TemplateScope* outer = std::exchange(scope_, &block.scope());
    Status s = assign(ast_.child(n, i), std::move(value));
    scope_ = outer;
    HB_TRY(s);
  }
  return exec_in(block.scope(), ast_.child(n, 0));
}

Status TemplateEvaluator::assign(uint32_t target, TemplateValue value) {
  const TemplateNode& n = ast_.node(target);
  if (n.kind == NodeKind::kName) {
    scope_->set(n.text, std::move(value));
    return {};
  }
  if (n.kind == NodeKind::kNamespaceRef) return assign_attribute(n, std::move(value));
  const Depth level(depth_);
  HB_TRY(enter(n.where));
  return assign_tuple(n, value);
}

Status TemplateEvaluator::assign_attribute(const TemplateNode& target, TemplateValue value) {
  const TemplateValue object = lookup(target.text);
  if (object.kind() != TemplateKind::kNamespace) {
    return fail(target.where, invalid_data(fmt::format("attributes of {} cannot be set: it is '{}', not a namespace",
                                                       quote(ast_.names[target.text]), type_name(object))));
  }
  TemplateNamespace& space = object.name_space();
  const TemplateValue& name = ast_.constants[target.extra];
  if (space.find(name) == nullptr) {
    Status s = budget_.take(2 * sizeof(TemplateValue));
    if (!s.ok()) return fail(target.where, s);
  }
  space.insert(name, std::move(value));
  return {};
}

Status TemplateEvaluator::assign_tuple(const TemplateNode& target, const TemplateValue& value) {
  auto items = iterate(budget_, value);
  if (!items.ok()) return fail(target.where, items.status());
  if ((*items)->items.size() != target.count) {
    return fail(target.where, invalid_data(fmt::format("expected {} values to unpack, found {}", target.count,
                                                       (*items)->items.size())));
  }
  for (uint32_t i = 0; i < target.count; ++i) HB_TRY(assign(ast_.child(target, i), (*items)->items[i]));
  return {};
}

// --- expressions ---

Result<TemplateValue> TemplateEvaluator::eval(uint32_t id) {
  const Depth level(depth_);
  // Chains lean left and may be long: find their start, then work outwards.
  std::vector<uint32_t> chain;
  while (true) {
    const TemplateNode& n = ast_.node(id);
    const bool link = n.kind == NodeKind::kBinary || n.kind == NodeKind::kAttribute || n.kind == NodeKind::kItem ||
                      n.kind == NodeKind::kCall || n.kind == NodeKind::kFilter || n.kind == NodeKind::kTest;
    if (!link) break;
    chain.push_back(id);
    id = ast_.child(n, 0);
  }
  const TemplateNode& first = ast_.node(id);
  HB_TRY(enter(first.where));
  auto value = eval_leaf(first);
  if (!value.ok()) return fail(first.where, value.status());
  for (auto link = chain.rbegin(); link != chain.rend(); ++link) {
    const TemplateNode& n = ast_.node(*link);
    HB_TRY(enter(n.where));
    value = eval_chain(n, std::move(*value));
    if (!value.ok()) return fail(n.where, value.status());
  }
  return value;
}

Result<TemplateValue> TemplateEvaluator::eval_leaf(const TemplateNode& n) {
  switch (n.kind) {
    case NodeKind::kConst: return ast_.constants[n.text];
    case NodeKind::kName: return lookup(n.text);
    case NodeKind::kCaptured: return *captured_;
    case NodeKind::kList: return eval_many(n, ListFlavor::kList);
    case NodeKind::kTuple: return eval_many(n, ListFlavor::kTuple);
    case NodeKind::kDict: return eval_dict(n);
    case NodeKind::kConcat: return eval_concat(n);
    case NodeKind::kAnd: return eval_logic(n, /*is_and=*/true);
    case NodeKind::kOr: return eval_logic(n, /*is_and=*/false);
    case NodeKind::kCompare: return eval_compare(n);
    case NodeKind::kConditional: return eval_conditional(n);
    case NodeKind::kNot: {
      HB_ASSIGN(const TemplateValue inner, eval(ast_.child(n, 0)));
      return TemplateValue::boolean(!truth(inner));
    }
    case NodeKind::kNegate: {
      HB_ASSIGN(const TemplateValue inner, eval(ast_.child(n, 0)));
      return negate(inner);
    }
    case NodeKind::kPositive: {
      HB_ASSIGN(const TemplateValue inner, eval(ast_.child(n, 0)));
      if (!inner.is_number()) return invalid_data(fmt::format("bad operand type for unary +: '{}'", type_name(inner)));
      return inner.kind() == TemplateKind::kBool ? TemplateValue::integer(inner.as_int()) : inner;
    }
    case NodeKind::kSlice: return unsupported("a slice outside an index is outside the template subset");
    default: return internal_error("not an expression");
  }
}

Result<TemplateValue> TemplateEvaluator::eval_chain(const TemplateNode& n, TemplateValue left) {
  switch (n.kind) {
    case NodeKind::kBinary: {
      HB_ASSIGN(const TemplateValue right, eval(ast_.child(n, 1)));
      return binary_op(budget_, static_cast<BinaryOp>(n.flag), left, right);
    }
    case NodeKind::kAttribute: return attribute(left, ast_.constants[n.text]);
    case NodeKind::kItem: return eval_item(n, left);
    case NodeKind::kCall: {
      HB_ASSIGN(const CallArgs args, eval_args(n));
      return call(left, args, nullptr);
    }
    case NodeKind::kFilter: {
      HB_ASSIGN(const CallArgs args, eval_args(n));
      return apply_filter(budget_, ast_.constants[n.text].bytes(), left, args);
    }
    default: {
      HB_ASSIGN(const CallArgs args, eval_args(n));
      HB_ASSIGN(const bool yes, apply_test(budget_, ast_.constants[n.text].bytes(), left, args));
      return TemplateValue::boolean(yes);
    }
  }
}

Result<TemplateValue> TemplateEvaluator::eval_many(const TemplateNode& n, ListFlavor flavor) {
  std::vector<TemplateValue> items;
  for (uint32_t i = 0; i < n.count; ++i) {
    HB_ASSIGN(TemplateValue v, eval(ast_.child(n, i)));
    items.push_back(std::move(v));
  }
  return budget_.list(std::move(items), flavor);
}

Result<TemplateValue> TemplateEvaluator::eval_dict(const TemplateNode& n) {
  std::vector<std::pair<TemplateValue, TemplateValue>> items;
  for (uint32_t i = 0; i + 1 < n.count; i += 2) {
    HB_ASSIGN(TemplateValue key, eval(ast_.child(n, i)));
    HB_ASSIGN(TemplateValue value, eval(ast_.child(n, i + 1)));
    items.emplace_back(std::move(key), std::move(value));
  }
  return budget_.dict(std::move(items));
}

Result<TemplateValue> TemplateEvaluator::eval_concat(const TemplateNode& n) {
  TextBuilder out(budget_);
  for (uint32_t i = 0; i < n.count; ++i) {
    HB_ASSIGN(const TemplateValue v, eval(ast_.child(n, i)));
    HB_TRY(append_str(budget_, v, out));
  }
  return std::move(out).value();
}

Result<TemplateValue> TemplateEvaluator::eval_logic(const TemplateNode& n, bool is_and) {
  TemplateValue value;
  for (uint32_t i = 0; i < n.count; ++i) {
    HB_ASSIGN(value, eval(ast_.child(n, i)));
    if (truth(value) != is_and) break;
  }
  return value;
}

Result<TemplateValue> TemplateEvaluator::eval_compare(const TemplateNode& n) {
  HB_ASSIGN(TemplateValue left, eval(ast_.child(n, 0)));
  for (uint32_t i = 1; i < n.count; ++i) {
    const TemplateNode& operand = ast_.node(ast_.child(n, i));
    HB_ASSIGN(TemplateValue right, eval(ast_.child(operand, 0)));
    HB_ASSIGN(const bool yes, compare_op(budget_, static_cast<CompareOp>(operand.flag), left, right));
    if (!yes) return TemplateValue::boolean(false);
    left = std::move(right);
  }
  return TemplateValue::boolean(true);
}

Result<TemplateValue> TemplateEvaluator::eval_conditional(const TemplateNode& n) {
  HB_ASSIGN(const TemplateValue test, eval(ast_.child(n, 0)));
  if (truth(test)) return eval(ast_.child(n, 1));
  const uint32_t otherwise = ast_.child(n, 2);
  if (ast_.node(otherwise).kind != NodeKind::kNothing) return eval(otherwise);
  return budget_.undefined("the inline if-expression evaluated to false and no else section was defined");
}

Result<TemplateValue> TemplateEvaluator::eval_item(const TemplateNode& n, const TemplateValue& object) {
  const TemplateNode& index_node = ast_.node(ast_.child(n, 1));
  if (index_node.kind == NodeKind::kSlice) return eval_slice(index_node, object);
  HB_ASSIGN(const TemplateValue index, eval(ast_.child(n, 1)));
  const bool attributes = object.kind() == TemplateKind::kNamespace || object.kind() == TemplateKind::kCallable;
  if (attributes && index.is_string()) return attribute(object, index);
  return get_item(budget_, object, index);
}

Result<TemplateValue> TemplateEvaluator::eval_slice(const TemplateNode& n, const TemplateValue& object) {
  TemplateValue parts[3];
  const TemplateValue* given[3] = {};
  for (uint32_t i = 0; i < 3; ++i) {
    if (ast_.node(ast_.child(n, i)).kind == NodeKind::kNothing) continue;
    HB_ASSIGN(parts[i], eval(ast_.child(n, i)));
    given[i] = &parts[i];
  }
  return get_slice(budget_, object, given[0], given[1], given[2]);
}

// The children of a call, filter or test behind the first.
Result<CallArgs> TemplateEvaluator::eval_args(const TemplateNode& n) {
  CallArgs args;
  for (uint32_t i = 1; i < n.count; ++i) {
    const TemplateNode& arg = ast_.node(ast_.child(n, i));
    if (arg.kind == NodeKind::kKeyword) {
      HB_ASSIGN(TemplateValue v, eval(ast_.child(arg, 0)));
      args.named.emplace_back(ast_.constants[arg.text].bytes(), std::move(v));
    } else {
      HB_ASSIGN(TemplateValue v, eval(ast_.child(n, i)));
      args.positional.push_back(std::move(v));
    }
  }
  return args;
}

TemplateValue TemplateEvaluator::lookup(uint32_t name) {
  for (const TemplateScope* s = scope_; s != nullptr; s = s->parent) {
    if (const TemplateValue* v = s->find(name); v != nullptr) return *v;
  }
  const std::string& text = ast_.names[name];
  if (const auto it = globals_.find(text); it != globals_.end()) return it->second;
  return budget_.undefined(quote(text) + " is undefined");
}

Result<TemplateValue> TemplateEvaluator::attribute(const TemplateValue& object, const TemplateValue& name) {
  const std::string& key = name.bytes();
  switch (object.kind()) {
    case TemplateKind::kUndefined: return invalid_data(object.undefined_text());
    case TemplateKind::kDict:
      if (has_method(object, key)) return method_value(object, key);
      if (const TemplateValue* v = object.dict().find(key); v != nullptr) return *v;
      return budget_.undefined("'dict object' has no attribute " + quote(key));
    case TemplateKind::kNamespace:
      if (const TemplateValue* v = object.name_space().find(key); v != nullptr) return *v;
      break;
    case TemplateKind::kCallable:
      if (object.callable().kind == CallableKind::kLoop) {
        if (key == "cycle") return method_value(object, key);
        if (key == "changed") return unsupported("loop.changed is outside the template subset");
        return loop_attribute(*object.callable().loop, key);
      }
      break;
    default:
      if (has_method(object, key)) return method_value(object, key);
      break;
  }
  return budget_.undefined(fmt::format("'{}' has no attribute {}", type_name(object), quote(key)));
}

TemplateValue TemplateEvaluator::loop_attribute(const TemplateLoop& loop, const std::string& name) {
  const auto& items = loop.items->items;
  const auto index = static_cast<int64_t>(loop.index), length = static_cast<int64_t>(items.size());
  if (name == "index") return TemplateValue::integer(index + 1);
  if (name == "index0") return TemplateValue::integer(index);
  if (name == "revindex") return TemplateValue::integer(length - index);
  if (name == "revindex0") return TemplateValue::integer(length - index - 1);
  if (name == "first") return TemplateValue::boolean(index == 0);
  if (name == "last") return TemplateValue::boolean(index + 1 == length);
  if (name == "length") return TemplateValue::integer(length);
  if (name == "depth") return TemplateValue::integer(loop.depth);
  if (name == "depth0") return TemplateValue::integer(loop.depth - 1);
  if (name == "previtem") {
    if (index > 0) return items[loop.index - 1];
    return budget_.undefined("there is no previous item");
  }
  if (name == "nextitem") {
    if (index + 1 < length) return items[loop.index + 1];
    return budget_.undefined("there is no next item");
  }
  return budget_.undefined("'loop' has no attribute " + quote(name));
}

Result<TemplateValue> TemplateEvaluator::method_value(const TemplateValue& self, const std::string& name) {
  TemplateCallable method;
  method.kind = CallableKind::kMethod;
  method.name = name;
  method.self = self;
  return make_callable(std::move(method));
}

}  // namespace halfbyte
