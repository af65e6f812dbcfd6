// Calls inside a template: macros, methods, and the functions that transformers gives to chat templates.
#include <fmt/format.h>

#include <ctime>

#include "base/quote.h"
#include "text/template_eval.h"
#include "text/template_ops.h"
#include "text/template_print.h"

namespace halfbyte {
namespace {

// jinja2.sandbox.MAX_RANGE.
constexpr int64_t kMaxRange = 100'000;
// Charged for each function value, each namespace, and each scope that outlives its block.
constexpr uint64_t kCallableBytes = 192, kNamespaceBytes = 256, kScopeBytes = 512;

}  // namespace

Result<TemplateValue> TemplateEvaluator::make_callable(TemplateCallable callable) {
  HB_TRY(budget_.spend(1));
  HB_TRY(budget_.take(kCallableBytes));
  callable.charge = TemplateCharge(&budget_, kCallableBytes);
  return TemplateValue(std::make_shared<const TemplateCallable>(std::move(callable)));
}

// The scope and those around it will outlive their blocks, up to the end of the rendering.
Status TemplateEvaluator::capture_scope(TemplateScope* scope) {
  for (; scope != nullptr && !scope->captured; scope = scope->parent) {
    HB_TRY(budget_.take(kScopeBytes));
    scope->captured = true;
  }
  return {};
}

Result<TemplateValue> TemplateEvaluator::call(const TemplateValue& callee, const CallArgs& args,
                                              const TemplateValue* caller) {
  if (callee.is_undefined()) return invalid_data(callee.undefined_text());
  if (callee.kind() != TemplateKind::kCallable) {
    return invalid_data(fmt::format("'{}' object is not callable", type_name(callee)));
  }
  const TemplateCallable& f = callee.callable();
  switch (f.kind) {
    case CallableKind::kMacro: return call_macro(f, args, caller);
    case CallableKind::kFunction: return call_function(f.name, args);
    case CallableKind::kMethod:
      if (f.self.kind() != TemplateKind::kCallable) return call_method(budget_, f.self, f.name, args);
      if (args.positional.empty() || !args.named.empty())
        return invalid_data("loop.cycle: expected the items to cycle through");
      return args.positional[f.self.callable().loop->index % args.positional.size()];
    case CallableKind::kLoop: break;
  }
  const TemplateLoop& loop = *f.loop;
  if (!loop.recursive) return invalid_data("loop(...) needs the 'recursive' modifier of its for block");
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("loop", args, {"iterable"}, 1));
  const TemplateValue items = *bound.get(0);
  return capture([&] { return run_loop(loop.for_node, items, loop.scope, loop.depth + 1); });
}

// Parameters are kParam children of the node, from `first` on.
Status TemplateEvaluator::bind_parameters(const TemplateNode& n, uint32_t first, const CallArgs& args,
                                          TemplateScope& scope) {
  const uint32_t count = n.count - first;
  if (args.positional.size() > count) {
    return invalid_data(
        fmt::format("a macro with {} parameters is called with {} arguments", count, args.positional.size()));
  }
  for (const auto& [name, value] : args.named) {
    bool known = name == "caller";
    for (uint32_t i = 0; i < count && !known; ++i) {
      known = i >= args.positional.size() && ast_.names[ast_.node(ast_.child(n, first + i)).text] == name;
    }
    if (!known) return invalid_data("the macro has no free parameter named " + quote(name));
    if (name == "caller") scope.set(kCallerName, value);
  }
  for (uint32_t i = 0; i < count; ++i) {
    const TemplateNode& param = ast_.node(ast_.child(n, first + i));
    const TemplateValue* given = i < args.positional.size() ? &args.positional[i] : nullptr;
    for (const auto& [name, value] : args.named) {
      if (given == nullptr && name == ast_.names[param.text]) given = &value;
    }
    if (given != nullptr) {
      scope.set(param.text, *given);
    } else if (ast_.node(ast_.child(param, 0)).kind != NodeKind::kNothing) {
      TemplateScope* outer = std::exchange(scope_, &scope);
      auto value = eval(ast_.child(param, 0));
      scope_ = outer;
      if (!value.ok()) return value.status();
      scope.set(param.text, std::move(*value));
    } else {
      scope.set(param.text, budget_.undefined("parameter " + quote(ast_.names[param.text]) + " was not provided"));
    }
  }
  return {};
}

Result<TemplateValue> TemplateEvaluator::call_macro(const TemplateCallable& macro, const CallArgs& args,
                                                    const TemplateValue* caller) {
  const TemplateNode& n = ast_.node(macro.node);
  const bool is_caller = n.kind == NodeKind::kCallBlock;
  Block block(*this, macro.scope);
  TemplateScope& scope = block.scope();
  if (!is_caller) scope.set(kCallerName, caller != nullptr ? *caller : budget_.undefined("No caller defined"));
  HB_TRY(bind_parameters(n, is_caller ? 2 : 1, args, scope));
  return capture([&] { return exec_in(scope, ast_.child(n, is_caller ? 1 : 0)); });
}

Result<TemplateValue> TemplateEvaluator::call_function(const std::string& name, const CallArgs& args) {
  if (name == "range") return make_range(args);
  if (name == "namespace") return make_namespace(args);
  if (name == "dict") return make_dict(args);
  if (name == "strftime_now") return strftime_now(args);
  return raise(args);
}

Result<TemplateValue> TemplateEvaluator::make_dict(const CallArgs& args) {
  std::vector<std::pair<TemplateValue, TemplateValue>> items;
  if (args.positional.size() > 1) return invalid_data("dict: expected at most one mapping");
  if (args.positional.size() == 1) {
    if (!args.positional[0].is_dict())
      return unsupported("dict(...) of other than a mapping is outside the template subset");
    items = args.positional[0].dict().items;
  }
  for (const auto& [name, value] : args.named) items.emplace_back(TemplateValue::constant(name), value);
  return budget_.dict(std::move(items));
}

Result<TemplateValue> TemplateEvaluator::make_namespace(const CallArgs& args) {
  HB_ASSIGN(const TemplateValue initial, make_dict(args));
  HB_TRY(budget_.take(kNamespaceBytes + initial.dict().items.size() * 2 * sizeof(TemplateValue)));
  auto space = std::make_unique<TemplateNamespace>();
  for (const auto& [name, value] : initial.dict().items) space->insert(name, value);
  namespaces_.push_back(std::move(space));
  return TemplateValue(namespaces_.back().get());
}

Result<TemplateValue> TemplateEvaluator::make_range(const CallArgs& args) {
  if (args.positional.empty() || args.positional.size() > 3 || !args.named.empty()) {
    return invalid_data("range: expected 1 to 3 integers");
  }
  for (const TemplateValue& v : args.positional) {
    if (v.is_undefined()) return invalid_data(v.undefined_text());
    if (!v.is_integral()) return invalid_data(fmt::format("range: expected an integer, found '{}'", type_name(v)));
  }
  const bool one = args.positional.size() == 1;
  const int64_t start = one ? 0 : args.positional[0].as_int();
  const int64_t stop = args.positional[one ? 0 : 1].as_int();
  const int64_t step = args.positional.size() == 3 ? args.positional[2].as_int() : 1;
  if (step == 0) return invalid_data("range: the step is not 0");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  // Unsigned arithmetic: stop - start may exceed the signed range.
  const uint64_t distance = step > 0 ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start)
                                     : static_cast<uint64_t>(start) - static_cast<uint64_t>(stop);
  const uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
  const uint64_t count = empty ? 0 : (distance - 1) / stride + 1;
  if (count > static_cast<uint64_t>(kMaxRange)) {
    return resource_exhausted(fmt::format("range: {} numbers are more than {}", count, kMaxRange));
  }
  std::vector<TemplateValue> items;
  items.reserve(count);
  for (uint64_t i = 0; i < count; ++i) {
    items.push_back(
        TemplateValue::integer(static_cast<int64_t>(static_cast<uint64_t>(start) + i * static_cast<uint64_t>(step))));
  }
  return budget_.list(std::move(items));
}

Result<TemplateValue> TemplateEvaluator::raise(const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("raise_exception", args, {"message"}, 1));
  HB_ASSIGN(const TemplateValue text, to_str(budget_, *bound.get(0)));
  return invalid_data("the template refuses these messages: " + quote(text.bytes(), 2000));
}

Result<TemplateValue> TemplateEvaluator::strftime_now(const CallArgs& args) {
  HB_ASSIGN(const BoundArgs bound, BoundArgs::bind("strftime_now", args, {"format"}, 1));
  HB_ASSIGN(const std::string format, bound.text(0, ""));
  const auto now = static_cast<std::time_t>(now_unix_ ? *now_unix_ : std::time(nullptr));
  std::tm local{};
  if (localtime_r(&now, &local) == nullptr) return invalid_data("strftime_now: the time is out of range");
  // A space in front tells an empty result from one that does not fit.
  const std::string padded = " " + format;
  char text[512];
  const size_t n =
      padded.find('\0') != std::string::npos ? 0 : std::strftime(text, sizeof text, padded.c_str(), &local);
  if (n == 0) return resource_exhausted(fmt::format("strftime_now: the date takes more than {} bytes", sizeof text));
  if (find_invalid_utf8(std::string_view(text, n))) {
    return invalid_data("strftime_now: the date is not UTF-8");
  }
  return budget_.string(std::string(text + 1, n - 1));
}

}  // namespace halfbyte
