// Against the ids that other implementations gave: the tokenizers package (golden_ids.jsonl) and llama.cpp (.inp and
// .out beside its vocabularies).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "base/json.h"
#include "text/detokenizer.h"
#include "tokenizer_data.h"

namespace halfbyte {
namespace {

using ::testing::ElementsAreArray;
using testing::gguf_tokenizer;
using testing::read_tokenizer_file;
using testing::tokenizer_json;
using testing::unpacked_gguf;

struct GoldenCase {
  int64_t id;
  std::string text;
  std::vector<int32_t> ids;
};

std::vector<GoldenCase> golden_cases(const std::string& column) {
  std::vector<GoldenCase> cases;
  std::istringstream lines(read_tokenizer_file("golden_ids.jsonl"));
  for (std::string line; std::getline(lines, line);) {
    const auto object = nlohmann::json::parse(line);
    cases.push_back({object["id"], object["text"], object[column]});
  }
  return cases;
}

void expect_golden(const Tokenizer& tokenizer, const std::string& column) {
  const std::vector<GoldenCase> cases = golden_cases(column);
  ASSERT_GE(cases.size(), 100u);
  for (const GoldenCase& c : cases) {
    const auto ids = tokenizer.encode(c.text);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_THAT(*ids, ElementsAreArray(c.ids)) << column << " case " << c.id << ": " << c.text;
    if (!column.starts_with("qwen") && !column.starts_with("r1")) {  // those normalise
      EXPECT_EQ(detokenize(tokenizer, *ids, /*skip_special=*/false), c.text) << column << " case " << c.id;
    }
  }
}

class GoldenJson : public ::testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(GoldenJson, IdsOfTheTokenizersPackage) {
  const auto [name, pre] = GetParam();
  const std::string json = tokenizer_json(name);
  HB_SKIP_WITHOUT(json, "shared/data/tokenizers");
  const auto tokenizer = Tokenizer::from_tokenizer_json(json, name);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->pre_tokenizer_name(), pre);
  expect_golden(**tokenizer, name);
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, GoldenJson,
                         ::testing::Values(std::pair{"gpt2", "gpt-2"}, std::pair{"qwen3", "qwen2"},
                                           std::pair{"r1-distill-qwen", "qwen2"}, std::pair{"smollm2", "smollm"},
                                           std::pair{"phi-2", "gpt-2"}),
                         [](const auto& vocabulary) {
                           std::string name = vocabulary.param.first;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// llama.cpp's cases: texts divided by a line, ids a line.
void expect_llama_cpp(const Tokenizer& tokenizer, const std::string& name) {
  const std::string inp = read_tokenizer_file("ggml/ggml-vocab-" + name + ".gguf.inp");
  std::istringstream out(read_tokenizer_file("ggml/ggml-vocab-" + name + ".gguf.out"));
  const std::string divider = "\n__ggml_vocab_test__\n";
  int count = 0;
  std::string line;
  for (size_t begin = 0; begin < inp.size() && std::getline(out, line); ++count) {
    const size_t end = std::min(inp.find(divider, begin), inp.size());
    const std::string text = inp.substr(begin, end - begin);
    std::vector<int32_t> expected;
    std::istringstream numbers(line);
    for (int32_t id; numbers >> id;) expected.push_back(id);
    const auto ids = tokenizer.encode(text, {.special_tokens = false});
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_THAT(*ids, ElementsAreArray(expected)) << name << " case " << count << ": " << text;
    begin = end + divider.size();
  }
  EXPECT_GE(count, 40) << name;
}

TEST(GgufVocabulary, Gpt2) {
  const std::string path = unpacked_gguf("gpt-2");
  HB_SKIP_WITHOUT(path, "shared/data/tokenizers");
  const auto tokenizer = gguf_tokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->pre_tokenizer_name(), "gpt-2");
  expect_golden(**tokenizer, "gpt2");
  expect_llama_cpp(**tokenizer, "gpt-2");
}

TEST(GgufVocabulary, Qwen2) {
  const std::string path = unpacked_gguf("qwen2");
  HB_SKIP_WITHOUT(path, "shared/data/tokenizers");
  const auto tokenizer = gguf_tokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->pre_tokenizer_name(), "qwen2");
  EXPECT_EQ((*tokenizer)->vocab_size(), 151936);
  expect_llama_cpp(**tokenizer, "qwen2");
}

TEST(GgufVocabulary, Llama3) {
  const std::string path = unpacked_gguf("llama-bpe");
  HB_SKIP_WITHOUT(path, "shared/data/tokenizers");
  const auto tokenizer = gguf_tokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->pre_tokenizer_name(), "llama-bpe");
  expect_golden(**tokenizer, "llama3");
  expect_llama_cpp(**tokenizer, "llama-bpe");
  const auto ids = (*tokenizer)->encode("Hello", {.special_tokens = true, .add_bos = true});
  ASSERT_TRUE(ids.ok());
  EXPECT_THAT(*ids, ::testing::ElementsAre(128000, 9906));
}

// SentencePiece's BPE: merges from scores, a space in front, bytes for characters that are no token.
TEST(GgufVocabulary, Llama2) {
  const std::string path = unpacked_gguf("llama-spm");
  HB_SKIP_WITHOUT(path, "shared/data/tokenizers");
  const auto tokenizer = gguf_tokenizer(path);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->pre_tokenizer_name(), "sentencepiece");
  EXPECT_EQ((*tokenizer)->vocab_size(), 32000);
  expect_llama_cpp(**tokenizer, "llama-spm");
  for (const std::string text : {"Hello world", " two  spaces ", "a\n\tb", "\xF0\x9F\xA6\x99\xE4\xBD\xA0"}) {
    const auto ids = (*tokenizer)->encode(text, {.special_tokens = true, .add_bos = true});
    ASSERT_TRUE(ids.ok());
    EXPECT_EQ(ids->front(), 1);
    EXPECT_EQ(detokenize(**tokenizer, *ids, /*skip_special=*/true), text);
    Detokenizer pieces(*tokenizer, /*skip_special=*/true);
    std::string streamed;
    for (const int32_t id : *ids) pieces.push(id, streamed);
    pieces.flush(streamed);
    EXPECT_EQ(streamed, text);
  }
}

}  // namespace
}  // namespace halfbyte
