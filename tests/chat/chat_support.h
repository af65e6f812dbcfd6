// A tokenizer whose ids are easy to say: 0 to 255 are the bytes, then a few merges, then added tokens.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "text/tokenizer.h"

namespace halfbyte::testing {

// GPT-2's printable stand-in for a byte.
inline std::string byte_letter(int byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  int hidden = 0;
  for (int b = 0; b < byte; ++b) hidden += !printable(b);
  std::string out;
  append_utf8(out, static_cast<char32_t>(printable(byte) ? byte : 256 + hidden));
  return out;
}

inline constexpr int32_t kDoubleNewline = 256, kHi = 257, kImStart = 258, kImEnd = 259, kUser = 260, kThink = 261;

// <|im_start|> and <|im_end|> are special; <|User|> and <think> are added tokens that are not.
inline std::shared_ptr<const Tokenizer> byte_tokenizer() {
  BpeVocab vocab;
  for (int b = 0; b < 256; ++b) vocab.tokens.push_back(byte_letter(b));
  vocab.tokens.push_back(byte_letter('\n') + byte_letter('\n'));
  vocab.tokens.push_back("hi");
  vocab.merges = {byte_letter('\n') + " " + byte_letter('\n'), "h i"};
  for (const char* text : {"<|im_start|>", "<|im_end|>", "<|User|>", "<think>"}) {
    const auto id = static_cast<int32_t>(vocab.tokens.size());
    vocab.tokens.push_back(text);
    vocab.added.push_back({id, text, id <= kImEnd});
  }
  vocab.pre = "gpt-2";
  vocab.eos = kImEnd;
  auto tokenizer = Tokenizer::from_vocab(std::move(vocab), "the byte tokenizer");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? *tokenizer : nullptr;
}

}  // namespace halfbyte::testing
