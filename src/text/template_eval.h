// Runs a parsed template. Recursion is counted (blocks, expressions, macro calls together), every node costs a step,
// and whatever is made is charged to the budget: any template ends, quickly, with text or with a Status.
#pragma once

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/template_ast.h"
#include "text/template_calls.h"

namespace halfbyte {

// namespace(...): the one value whose attributes templates may set. Owned by the evaluator.
struct TemplateNamespace : TemplateDict {};

// The variables of one block. A scope sees its parents; assignments stay in it. Owned by the block that runs, or by the
// evaluator once a macro has captured it.
class TemplateScope {
 public:
  explicit TemplateScope(TemplateScope* up) : parent(up) {}
  const TemplateValue* find(uint32_t name) const;
  void set(uint32_t name, TemplateValue value);
  TemplateScope* parent;
  bool captured = false;

 private:
  // Most scopes hold a few names; large ones get an index.
  std::vector<std::pair<uint32_t, TemplateValue>> variables_;
  std::unordered_map<uint32_t, size_t> index_;
};

// What the name `loop` stands for in a for block.
struct TemplateLoop {
  std::shared_ptr<const TemplateList> items;
  size_t index = 0;
  int64_t depth = 1;
  uint32_t for_node = 0;
  TemplateScope* scope = nullptr;  // the scope around the for block
  bool recursive = false;
};

enum class CallableKind : uint8_t { kMacro, kMethod, kFunction, kLoop };

struct TemplateCallable {
  CallableKind kind = CallableKind::kFunction;
  std::string name;                    // of the method or function
  TemplateValue self;                  // of the method
  uint32_t node = 0;                   // kMacro or kCallBlock
  TemplateScope* scope = nullptr;      // where the macro was defined
  std::shared_ptr<TemplateLoop> loop;  // kLoop
  TemplateCharge charge;
};

// One rendering. Not thread-safe; the AST is shared.
class TemplateEvaluator {
 public:
  TemplateEvaluator(const TemplateAst& ast, TemplateBudget& budget, std::optional<int64_t> now_unix);
  ~TemplateEvaluator();

  // A variable of the outermost scope.
  void set_global(const std::string& name, TemplateValue value) { globals_.insert_or_assign(name, std::move(value)); }
  Result<MarkedText> run();

 private:
  enum class Flow : uint8_t { kNormal, kBreak, kContinue };
  // Counts one level of recursion.
  struct Depth {
    explicit Depth(uint32_t& d) : depth(d) { ++depth; }
    ~Depth() { --depth; }
    Depth(const Depth&) = delete;
    Depth& operator=(const Depth&) = delete;
    uint32_t& depth;
  };
  // The scope of one block. Its destructor gives it to the evaluator if a macro or loop has captured it.
  class Block {
   public:
    Block(TemplateEvaluator& eval, TemplateScope* parent)
        : eval_(eval), scope_(std::make_unique<TemplateScope>(parent)) {}
    ~Block() {
      if (scope_->captured) eval_.scopes_.push_back(std::move(scope_));
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    TemplateScope& scope() { return *scope_; }

   private:
    TemplateEvaluator& eval_;
    std::unique_ptr<TemplateScope> scope_;
  };

  Status enter(uint32_t where);
  Status fail(uint32_t where, Status status);

  // Statements write to *out_.
  Status exec(uint32_t id);
  Status exec_block(uint32_t id);
  Status exec_in(TemplateScope& scope, uint32_t body);
  Status exec_if(const TemplateNode& n);
  Status exec_for(const TemplateNode& n);
  Status run_loop(uint32_t for_node, const TemplateValue& iterable, TemplateScope* scope, int64_t depth);
  Status loop_body(const TemplateNode& n, const std::shared_ptr<TemplateLoop>& loop, const TemplateValue& loop_value);
  Result<std::shared_ptr<const TemplateList>> filtered(const TemplateNode& n,
                                                       std::shared_ptr<const TemplateList> items);
  Status exec_set(const TemplateNode& n);
  Status exec_set_block(const TemplateNode& n);
  Status exec_macro(const TemplateNode& n, uint32_t id);
  Status exec_call_block(const TemplateNode& n, uint32_t id);
  Status exec_filter_block(const TemplateNode& n);
  Status exec_with(const TemplateNode& n);
  Status assign(uint32_t target, TemplateValue value);
  Status assign_attribute(const TemplateNode& target, TemplateValue value);
  Status assign_tuple(const TemplateNode& target, const TemplateValue& value);
  // What `body` writes, as a string.
  Result<TemplateValue> capture(const std::function<Status()>& body);

  Result<TemplateValue> eval(uint32_t id);
  Result<TemplateValue> eval_leaf(const TemplateNode& n);
  // A node whose first child has the value `left`: binary operators, attributes, calls, filters, tests.
  Result<TemplateValue> eval_chain(const TemplateNode& n, TemplateValue left);
  Result<TemplateValue> eval_many(const TemplateNode& n, ListFlavor flavor);
  Result<TemplateValue> eval_dict(const TemplateNode& n);
  Result<TemplateValue> eval_concat(const TemplateNode& n);
  Result<TemplateValue> eval_logic(const TemplateNode& n, bool is_and);
  Result<TemplateValue> eval_compare(const TemplateNode& n);
  Result<TemplateValue> eval_conditional(const TemplateNode& n);
  Result<TemplateValue> eval_item(const TemplateNode& n, const TemplateValue& object);
  Result<TemplateValue> eval_slice(const TemplateNode& n, const TemplateValue& object);
  Result<CallArgs> eval_args(const TemplateNode& n);

  TemplateValue lookup(uint32_t name);
  Result<TemplateValue> attribute(const TemplateValue& object, const TemplateValue& name);
  TemplateValue loop_attribute(const TemplateLoop& loop, const std::string& name);
  Result<TemplateValue> method_value(const TemplateValue& self, const std::string& name);

  Result<TemplateValue> call(const TemplateValue& callee, const CallArgs& args, const TemplateValue* caller);
  Result<TemplateValue> call_macro(const TemplateCallable& macro, const CallArgs& args, const TemplateValue* caller);
  Status bind_parameters(const TemplateNode& n, uint32_t first, const CallArgs& args, TemplateScope& scope);
  Result<TemplateValue> call_function(const std::string& name, const CallArgs& args);
  Result<TemplateValue> make_namespace(const CallArgs& args);
  Result<TemplateValue> make_range(const CallArgs& args);
  Result<TemplateValue> make_dict(const CallArgs& args);
  Result<TemplateValue> raise(const CallArgs& args);
  Result<TemplateValue> strftime_now(const CallArgs& args);
  Result<TemplateValue> make_callable(TemplateCallable callable);
  Status capture_scope(TemplateScope* scope);

  const TemplateAst& ast_;
  TemplateBudget& budget_;
  std::optional<int64_t> now_unix_;
  std::unordered_map<std::string, TemplateValue> globals_;
  std::deque<std::unique_ptr<TemplateScope>> scopes_;  // captured ones
  std::deque<std::unique_ptr<TemplateNamespace>> namespaces_;
  TemplateScope* scope_ = nullptr;
  TextBuilder* out_ = nullptr;
  const TemplateValue* captured_ = nullptr;  // what kCaptured stands for
  Flow flow_ = Flow::kNormal;
  uint32_t depth_ = 0;
  bool located_ = false;  // the failure on its way up says where it happened
};

}  // namespace halfbyte
