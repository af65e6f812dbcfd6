// tokenizer.json and tokenizer_config.json from a GGUF file's vocabulary, readable by the Python package tokenizers.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "io/tokenizer_source.h"

namespace halfbyte {

// kUnsupported for a pre-tokeniser whose rules are not known (lists those that are).
Result<std::string> make_tokenizer_json(const GgufVocab& vocab);
// Chat templates, special tokens, BOS.
std::string make_tokenizer_config(const TokenizerSource& source, int64_t max_length);

}  // namespace halfbyte
