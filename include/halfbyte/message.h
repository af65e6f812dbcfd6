// A conversation: the messages that a chat template turns into a prompt, and the text that comes back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace halfbyte {

struct ToolCall {
  std::string id, name;
  std::string arguments_json;  // an object
};

// ChatMessage{.role = "user", .content = "Hello"}
struct ChatMessage {
  std::string role;  // "system", "user", "assistant" or "tool": what the template knows
  std::optional<std::string> content = {};
  std::optional<std::string> reasoning_content = {};  // of an assistant's message; most templates drop it
  std::vector<ToolCall> tool_calls = {};
  std::string tool_call_id = {}, name = {};
};

struct ChatRenderOptions {
  bool add_generation_prompt = true;  // the prompt ends where the model's answer begins
  std::string tools_json = {};        // an array, or empty
  // chat_template_kwargs: name and JSON value, e.g. {"enable_thinking", "false"}.
  std::vector<std::pair<std::string, std::string>> kwargs_json = {};
  std::string bos_token = {}, eos_token = {};  // "": the model's
  std::optional<int64_t> now_unix = {};        // for strftime_now, local time; none: the clock
};

// What one token, or the end, adds to the text of a generation. Whole UTF-8 characters.
struct OutputDelta {
  std::string reasoning, answer;
};

}  // namespace halfbyte
