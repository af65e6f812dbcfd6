#include "text/chat_template.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/quote.h"
#include "text/template_eval.h"
#include "text/template_parser.h"

namespace halfbyte {
namespace {

// Names that a request's chat_template_kwargs may not replace (CVE-2025-62426).
constexpr std::string_view kReservedNames[] = {
    "messages",
    "tools",
    "documents",
    "add_generation_prompt",
    "bos_token",
    "eos_token",
    "raise_exception",
    "range",
    "strftime_now",
    "namespace",
    "dict",
    "loop",
    "caller",
};

// A JSON value as a template value. What comes with a request is marked as user text, keys included.
Result<TemplateValue> from_json(TemplateBudget& budget, const JsonValue& json) {
  switch (json.kind()) {
    case JsonKind::kNull: return TemplateValue::none();
    case JsonKind::kBool: {
      HB_ASSIGN(const bool b, json.as_bool());
      return TemplateValue::boolean(b);
    }
    case JsonKind::kInt: {
      HB_ASSIGN(const int64_t i, json.as_int(INT64_MIN, INT64_MAX));
      return TemplateValue::integer(i);
    }
    case JsonKind::kDouble: {
      HB_ASSIGN(const double d, json.as_double());
      return TemplateValue::real(d);
    }
    case JsonKind::kString: {
      HB_ASSIGN(const std::string_view s, json.as_string());
      return budget.string(MarkedText(std::string(s), /*user=*/true));
    }
    case JsonKind::kArray: {
      HB_ASSIGN(const auto elements, json.elements());
      std::vector<TemplateValue> items;
      for (const JsonValue& e : elements) {
        HB_ASSIGN(TemplateValue v, from_json(budget, e));
        items.push_back(std::move(v));
      }
      return budget.list(std::move(items));
    }
    case JsonKind::kObject: {
      HB_ASSIGN(const auto members, json.members());
      std::vector<std::pair<TemplateValue, TemplateValue>> items;
      for (const auto& [key, member] : members) {
        HB_ASSIGN(TemplateValue k, budget.string(MarkedText(std::string(key), /*user=*/true)));
        HB_ASSIGN(TemplateValue v, from_json(budget, member));
        items.emplace_back(std::move(k), std::move(v));
      }
      return budget.dict(std::move(items));
    }
  }
  return internal_error("unknown JSON kind");
}

Result<TemplateValue> parse_json(TemplateBudget& budget, std::string_view text, const std::string& name) {
  JsonLimits limits;
  limits.max_bytes = budget.limits().max_output_bytes;
  HB_ASSIGN(const auto document, JsonDocument::parse(text, name, limits));
  return from_json(budget, document->root());
}

using Items = std::vector<std::pair<TemplateValue, TemplateValue>>;

Status add_text(TemplateBudget& budget, Items& items, const char* key, const std::string& text,
                const std::string& where) {
  if (const auto bad = find_invalid_utf8(text)) {
    return invalid_data(fmt::format("{}.{} is not UTF-8 at byte {}", where, key, *bad));
  }
  HB_ASSIGN(TemplateValue value, budget.string(MarkedText(text, /*user=*/true)));
  items.emplace_back(TemplateValue::constant(key), std::move(value));
  return {};
}

Result<TemplateValue> tool_call_value(TemplateBudget& budget, const ToolCall& call, const std::string& where) {
  Items function, items;
  HB_TRY(add_text(budget, function, "name", call.name, where));
  HB_ASSIGN(TemplateValue arguments,
            parse_json(budget, call.arguments_json.empty() ? "{}" : call.arguments_json, where + ".arguments"));
  function.emplace_back(TemplateValue::constant("arguments"), std::move(arguments));
  if (!call.id.empty()) HB_TRY(add_text(budget, items, "id", call.id, where));
  items.emplace_back(TemplateValue::constant("type"), TemplateValue::constant("function"));
  HB_ASSIGN(TemplateValue f, budget.dict(std::move(function)));
  items.emplace_back(TemplateValue::constant("function"), std::move(f));
  return budget.dict(std::move(items));
}

Result<TemplateValue> message_value(TemplateBudget& budget, const ChatMessage& m, const std::string& where) {
  Items items;
  HB_TRY(add_text(budget, items, "role", m.role, where));
  // What is not there is left out, as transformers leaves out null.
  if (m.content) HB_TRY(add_text(budget, items, "content", *m.content, where));
  if (m.reasoning_content) HB_TRY(add_text(budget, items, "reasoning_content", *m.reasoning_content, where));
  if (!m.tool_calls.empty()) {
    std::vector<TemplateValue> calls;
    for (size_t i = 0; i < m.tool_calls.size(); ++i) {
      HB_ASSIGN(TemplateValue call,
                tool_call_value(budget, m.tool_calls[i], fmt::format("{}.tool_calls[{}]", where, i)));
      calls.push_back(std::move(call));
    }
    HB_ASSIGN(TemplateValue list, budget.list(std::move(calls)));
    items.emplace_back(TemplateValue::constant("tool_calls"), std::move(list));
  }
  if (!m.tool_call_id.empty()) HB_TRY(add_text(budget, items, "tool_call_id", m.tool_call_id, where));
  if (!m.name.empty()) HB_TRY(add_text(budget, items, "name", m.name, where));
  return budget.dict(std::move(items));
}

bool is_identifier(const std::string& s) {
  const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !s.empty() && letter(s[0]) &&
         std::all_of(s.begin(), s.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

}  // namespace

struct ChatTemplate::Impl {
  std::string name;
  TemplateLimits limits;
  std::unique_ptr<const TemplateAst> ast;

  Status set_variables(TemplateBudget& budget, TemplateEvaluator& eval, const ChatRenderOptions& options) const {
    eval.set_global("add_generation_prompt", TemplateValue::boolean(options.add_generation_prompt));
    eval.set_global("documents", TemplateValue::none());
    TemplateValue tools = TemplateValue::none();
    if (!options.tools_json.empty()) {
      HB_ASSIGN(tools, parse_json(budget, options.tools_json, "tools"));
    }
    eval.set_global("tools", tools);
    // A model without the token leaves the name undefined, as transformers does.
    if (!options.bos_token.empty()) eval.set_global("bos_token", TemplateValue::constant(options.bos_token));
    if (!options.eos_token.empty()) eval.set_global("eos_token", TemplateValue::constant(options.eos_token));
    for (const auto& [key, json] : options.kwargs_json) {
      if (!is_identifier(key) ||
          std::find(std::begin(kReservedNames), std::end(kReservedNames), key) != std::end(kReservedNames)) {
        return invalid_argument(fmt::format("chat_template_kwargs: the name {} cannot be set", quote(key)));
      }
      HB_ASSIGN(TemplateValue value, parse_json(budget, json, "chat_template_kwargs." + key));
      eval.set_global(key, std::move(value));
    }
    return {};
  }

  Result<std::vector<RenderedPiece>> run(TemplateBudget& budget, TemplateValue messages,
                                         const ChatRenderOptions& options) const {
    TemplateEvaluator eval(*ast, budget, options.now_unix);
    HB_TRY(set_variables(budget, eval, options));
    eval.set_global("messages", std::move(messages));
    HB_ASSIGN(const MarkedText text, eval.run());
    std::vector<RenderedPiece> pieces;
    text.for_each_run([&](std::string_view run, bool user) { pieces.push_back({std::string(run), user}); });
    return pieces;
  }
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source, const std::string& name,
                                                                const TemplateLimits& limits) {
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  impl->limits = limits;
  HB_ASSIGN(impl->ast, parse_template(source, name, limits));
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(impl)));
}

Result<std::vector<RenderedPiece>> ChatTemplate::render(const std::vector<ChatMessage>& messages,
                                                        const ChatRenderOptions& options) const {
  TemplateBudget budget(impl_->limits);
  std::vector<TemplateValue> values;
  for (size_t i = 0; i < messages.size(); ++i) {
    HB_ASSIGN(TemplateValue m, message_value(budget, messages[i], fmt::format("messages[{}]", i)));
    values.push_back(std::move(m));
  }
  HB_ASSIGN(TemplateValue list, budget.list(std::move(values)));
  return impl_->run(budget, std::move(list), options);
}

Result<std::vector<RenderedPiece>> ChatTemplate::render_json(std::string_view messages_json,
                                                             const ChatRenderOptions& options) const {
  TemplateBudget budget(impl_->limits);
  HB_ASSIGN(TemplateValue messages, parse_json(budget, messages_json, "messages"));
  if (!messages.is_list())
    return invalid_data(fmt::format("messages: expected an array, found '{}'", type_name(messages)));
  return impl_->run(budget, std::move(messages), options);
}

std::string rendered_text(const std::vector<RenderedPiece>& pieces) {
  std::string out;
  for (const RenderedPiece& p : pieces) out += p.text;
  return out;
}

}  // namespace halfbyte
