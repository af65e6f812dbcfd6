// Chat templates: a bounded subset of Jinja2, enough for the templates of the supported models, rendered exactly as
// transformers renders them. A template comes from the model's folder, so it is untrusted: parsing and rendering have
// budgets for steps, depth and output, there is no access to host objects, and every failure is a Status.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace halfbyte {

// A value inside a template: JSON-like, objects keep their order. Declared in text/template_value.h.
class TemplateValue;

struct ToolCall {
  std::string id, name;
  std::string arguments_json;  // an object
};

struct ChatMessage {
  std::string role;
  std::optional<std::string> content;
  std::optional<std::string> reasoning_content;
  std::vector<ToolCall> tool_calls;
  std::string tool_call_id, name;
};

struct TemplateLimits {
  uint64_t max_template_bytes = 1 << 20;
  uint64_t max_steps = 5'000'000;        // expressions and statements evaluated
  uint32_t max_depth = 100;              // nesting of blocks, expressions, macro calls
  uint64_t max_output_bytes = 64 << 20;  // of the result, and of all values made on the way
};

struct ChatRenderOptions {
  bool add_generation_prompt = true;
  std::string tools_json;                                        // an array, or empty
  std::vector<std::pair<std::string, std::string>> kwargs_json;  // chat_template_kwargs: name, JSON value
  std::string bos_token, eos_token;
  std::optional<int64_t> now_unix;  // for strftime_now, local time; none: the clock
};

// A run of rendered text. `user` marks bytes that came out of a message (typed by a user, a tool or the model), so that
// the tokenizer does not read special tokens in them.
struct RenderedPiece {
  std::string text;
  bool user = false;
};

// Thread-safe after parsing.
class ChatTemplate {
 public:
  // Errors give line and column, name what is outside the subset, and list what is inside where that helps.
  static Result<std::shared_ptr<const ChatTemplate>> parse(std::string_view source, const std::string& name,
                                                           const TemplateLimits& limits = {});
  ~ChatTemplate();

  Result<std::vector<RenderedPiece>> render(const std::vector<ChatMessage>& messages,
                                            const ChatRenderOptions& options) const;
  // The same with messages as JSON (an array of objects, passed to the template unchanged).
  Result<std::vector<RenderedPiece>> render_json(std::string_view messages_json,
                                                 const ChatRenderOptions& options) const;

 private:
  struct Impl;
  explicit ChatTemplate(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// All pieces joined.
std::string rendered_text(const std::vector<RenderedPiece>& pieces);

}  // namespace halfbyte
