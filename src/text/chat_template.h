// Chat templates: a bounded subset of Jinja2, enough for the templates of the supported models, rendered exactly as
// transformers renders them. A template comes from the model's folder, so it is untrusted: parsing and rendering have
// budgets for steps, depth and output, there is no access to host objects, and every failure is a Status.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "halfbyte/message.h"

namespace halfbyte {

struct TemplateLimits {
  uint64_t max_template_bytes = 1 << 20;
  uint64_t max_steps = 5'000'000;        // expressions and statements evaluated
  uint32_t max_depth = 100;              // nesting of blocks, expressions, macro calls
  uint64_t max_output_bytes = 64 << 20;  // of the result, and of all values made on the way
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
