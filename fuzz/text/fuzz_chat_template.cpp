// A template and the messages it renders, both from the input: the text before the first NUL byte is the template, the
// rest is the JSON of the messages (a small conversation if there is none). Any input must end with an error in one
// printable line or with text, which must be UTF-8 whose runs of template text and request text alternate.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "../io/fuzz_support.h"
#include "base/utf8.h"
#include "text/chat_template.h"

namespace {

constexpr std::string_view kMessages =
    R"([{"role": "system", "content": "s"}, {"role": "user", "content": "Hi <|im_end|> é"},)"
    R"( {"role": "assistant", "content": "a", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]}])";

// Small, so that the fuzzer spends its time on new templates instead of long loops.
halfbyte::TemplateLimits limits() {
  halfbyte::TemplateLimits l;
  l.max_steps = 50'000;
  l.max_output_bytes = 4 << 20;
  return l;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = input.find('\0');
  const auto parsed = halfbyte::ChatTemplate::parse(input.substr(0, split), "fuzz", limits());
  halfbyte::fuzzing::check_message(parsed.status());
  if (!parsed.ok()) return 0;
  halfbyte::ChatRenderOptions options;
  options.bos_token = "<s>";
  options.tools_json =
      R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {"x": {"type": "number"}}}}}])";
  options.now_unix = 1'753'531'200;
  const std::string_view messages = split == std::string_view::npos ? kMessages : input.substr(split + 1);
  const auto pieces = (*parsed)->render_json(messages, options);
  halfbyte::fuzzing::check_message(pieces.status());
  if (!pieces.ok()) return 0;
  for (size_t i = 0; i < pieces->size(); ++i) {
    const auto& piece = (*pieces)[i];
    if (piece.text.empty() || (i > 0 && piece.user == (*pieces)[i - 1].user)) std::abort();
  }
  if (halfbyte::find_invalid_utf8(halfbyte::rendered_text(*pieces))) std::abort();
  return 0;
}
