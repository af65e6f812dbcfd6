#include "fuzz_support.h"
#include "io/tokenizer_source.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfbyte;
  const auto source = parse_tokenizer_config(fuzzing::text_of(data, size), "tokenizer_config.json");
  fuzzing::check_message(source.status());
  if (!source.ok()) return 0;
  for (const TokenizerAddedToken& token : source->added_tokens)
    fuzzing::require(token.id >= 0 && token.id <= INT32_MAX);
  source->chat_template();
  return 0;
}
