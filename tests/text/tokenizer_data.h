// The vocabularies of shared/data/tokenizers, some of which are compressed or come in parts. See
// tests/support/shared_data.h for where they lie.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/tokenizer_source.h"
#include "support/shared_data.h"
#include "text/tokenizer.h"

namespace halfbyte::testing {

// The bytes of data/tokenizers/NAME, or of NAME.xz unpacked by the xz program; empty if there is neither.
inline std::string read_tokenizer_file(const std::string& name) {
  if (const std::string path = shared_data("tokenizers/" + name); !path.empty()) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  const std::string packed = shared_data("tokenizers/" + name + ".xz");
  if (packed.empty()) return {};
  std::FILE* pipe = popen(("xz -dc '" + packed + "'").c_str(), "r");
  if (pipe == nullptr) return {};
  std::string bytes;
  char block[1 << 16];
  for (size_t n; (n = std::fread(block, 1, sizeof block, pipe)) > 0;) bytes.append(block, n);
  return pclose(pipe) == 0 ? bytes : std::string();
}

// GPT-2 as a tokenizer.json, put together from vocab.json and merges.txt.
inline std::string gpt2_tokenizer_json() {
  const std::string vocab = read_tokenizer_file("gpt2/vocab.json");
  const std::string merges = read_tokenizer_file("gpt2/merges.txt");
  if (vocab.empty() || merges.empty()) return {};
  std::string list;
  for (size_t begin = 0, end; (end = merges.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = merges.substr(begin, end - begin);
    if (line.empty() || line.starts_with("#version")) continue;
    list += (list.empty() ? "" : ",") + nlohmann::json(line).dump();
  }
  return R"({"added_tokens":[{"id":50256,"content":"<|endoftext|>","special":true}],)"
         R"("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"decoder":{"type":"ByteLevel"},)"
         R"("model":{"type":"BPE","vocab":)" +
         vocab + R"(,"merges":[)" + list + "]}}";
}

// The value of the first member `key` in JSON text, an object, as it stands there. (A parser for 5 MB would dominate the test.)
inline std::string object_text(const std::string& json, const std::string& key) {
  const size_t begin = json.find('{', json.find("\"" + key + "\":"));
  int depth = 0;
  bool quoted = false;
  for (size_t i = begin; i < json.size(); ++i) {
    if (json[i] == '"') quoted = !quoted;
    if (quoted && json[i] == '\\') ++i;
    if (quoted) continue;
    if (json[i] == '{') ++depth;
    if (json[i] == '}' && --depth == 0) return json.substr(begin, i + 1 - begin);
  }
  return {};
}

// R1-Distill-Qwen's file without its model, which is Qwen3's.
inline std::string r1_tokenizer_json() {
  const std::string head = read_tokenizer_file("r1-distill-qwen/tokenizer_head.json");
  const std::string qwen = read_tokenizer_file("qwen3/tokenizer.json");
  if (head.empty() || qwen.empty()) return {};
  return head.substr(0, head.rfind('}')) + ",\"model\":" + object_text(qwen, "model") + "}";
}

// "gpt2", "qwen3", "r1-distill-qwen", "smollm2", "phi-2"; empty if the data are not there.
inline std::string tokenizer_json(const std::string& name) {
  if (name == "gpt2") return gpt2_tokenizer_json();
  if (name == "r1-distill-qwen") return r1_tokenizer_json();
  return read_tokenizer_file(name + "/tokenizer.json");
}

// data/tokenizers/ggml/ggml-vocab-NAME.gguf through the GGUF reader, or a file by its path.
inline Result<std::shared_ptr<const Tokenizer>> gguf_tokenizer(const std::string& path) {
  HB_ASSIGN(TokenizerSource source, open_tokenizer_source(path));
  if (!source.vocab) return not_found(path + ": has no vocabulary");
  GgufVocab& read = *source.vocab;
  BpeVocab vocab;
  vocab.tokens = std::move(read.tokens);
  vocab.merges = std::move(read.merges);
  vocab.scores = std::move(read.scores);
  vocab.space_prefix = read.space_prefix;
  for (const TokenizerAddedToken& token : read.added) {
    vocab.added.push_back({static_cast<int32_t>(token.id), token.text, token.special});
  }
  vocab.pre = read.pre;
  vocab.bos = read.bos;
  vocab.eos = read.eos;
  vocab.add_bos = read.add_bos;
  return Tokenizer::from_vocab(std::move(vocab), path);
}

// Unpacks data/tokenizers/ggml/ggml-vocab-NAME.gguf into the test's own folder; empty if it is not there.
inline std::string unpacked_gguf(const std::string& name) {
  const std::string bytes = read_tokenizer_file("ggml/ggml-vocab-" + name + ".gguf");
  if (bytes.empty()) return {};
  const std::string path = std::string(HALFBYTE_TEST_TMP) + "/" + name + ".gguf";
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

}  // namespace halfbyte::testing
