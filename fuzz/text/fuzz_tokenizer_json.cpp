// Any bytes as a tokenizer.json: an error, or a tokenizer that encodes and decodes without fault.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "text/detokenizer.h"
#include "text/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = halfbyte::Tokenizer::from_tokenizer_json(json, "fuzz");
  if (!tokenizer.ok()) {
    if (tokenizer.status().message().empty()) std::abort();
    return 0;
  }
  const std::string_view text =
      "ab  c's 12\r\n<a> e\u0301 \u4e2d\u6587 \U0001f600\t'S<|im_end|>aaaaaaaaaaaaaaaaaaaaaaaa";
  for (const bool special : {false, true}) {
    const auto ids = (*tokenizer)->encode(text, {.special_tokens = special, .add_bos = special});
    if (!ids.ok()) continue;  // a regular expression that needs too much
    for (const int32_t id : *ids) {
      if (id < 0 || id >= (*tokenizer)->vocab_size()) std::abort();
    }
    halfbyte::detokenize(**tokenizer, *ids, special);
  }
  return 0;
}
