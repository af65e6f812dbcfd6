// The real file that the quickstart uses: SmolLM2-135M-Instruct as Q4_1 GGUF.
#include <gtest/gtest.h>

#include <bit>
#include <cstdio>
#include <fstream>

#include "io/model_source.h"
#include "support/expect_status.h"
#include "support/shared_data.h"

namespace halfbyte {
namespace {

using testing::smollm2_gguf;

TEST(SmolLM2, Configuration) {
  const std::string path = smollm2_gguf();
  HB_SKIP_WITHOUT(path, "the SmolLM2 GGUF");
  HB_ASSERT_OK(const ModelSource source, open_model_source(path));
  EXPECT_EQ(source.kind(), "GGUF v3");
  const HfConfig& config = source.config;
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.rope.theta, 100000.0);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.eos_token_ids, std::vector<int64_t>{2});
  // The same facts as the model's config.json.
  const std::string folder = testing::shared_data("model_configs/SmolLM2-135M-Instruct");
  HB_SKIP_WITHOUT(folder, "shared/data/model_configs");
  HB_ASSERT_OK(const HfConfig json, read_hf_config(folder));
  EXPECT_EQ(config.architectures, json.architectures);
  EXPECT_EQ(config.hidden_size, json.hidden_size);
  EXPECT_EQ(config.intermediate_size, json.intermediate_size);
  EXPECT_EQ(config.num_layers, json.num_layers);
  EXPECT_EQ(config.num_heads, json.num_heads);
  EXPECT_EQ(config.num_kv_heads, json.num_kv_heads);
  EXPECT_EQ(config.head_dim, json.head_dim);
  EXPECT_EQ(config.vocab_size, json.vocab_size);
  EXPECT_EQ(config.max_position_embeddings, json.max_position_embeddings);
  EXPECT_EQ(config.rms_norm_eps, json.rms_norm_eps);
  EXPECT_EQ(config.rope.theta, json.rope.theta);
  EXPECT_EQ(config.rope.kind, json.rope.kind);
  EXPECT_EQ(config.tie_word_embeddings, json.tie_word_embeddings);
  EXPECT_EQ(config.bos_token_id, json.bos_token_id);
  EXPECT_EQ(config.eos_token_ids, json.eos_token_ids);
}

// As make_smollm2_golden.py defines it.
uint64_t checksum(std::span<const float> values) {
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += std::bit_cast<uint32_t>(values[i]) * (2 * uint64_t{i} + 1);
  return sum;
}

std::string shape_text(const Shape& shape) {
  std::string out;
  for (const int64_t size : shape.dims) out += (out.empty() ? "" : "x") + std::to_string(size);
  return out;
}

// Every value of every tensor equals, bit for bit, what the gguf package of llama.cpp gives, in Hugging Face's order of
// rows.
TEST(SmolLM2, ValuesEqualTheGgufPackage) {
  const std::string path = smollm2_gguf();
  HB_SKIP_WITHOUT(path, "the SmolLM2 GGUF");
  HB_ASSERT_OK(const ModelSource source, open_model_source(path));
  std::ifstream golden(HALFBYTE_SOURCE_DIR "/tests/io/smollm2_values.txt");
  size_t lines = 0;
  for (std::string name, shape, sum; golden >> name >> shape >> sum; ++lines) {
    const TensorInfo* tensor = source.tensors->find(name);
    ASSERT_NE(tensor, nullptr) << name;
    EXPECT_EQ(shape_text(tensor->shape), shape) << name;
    HB_ASSERT_OK(const auto values, read_all(*source.tensors, *tensor));
    char text[17];
    std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(checksum(values)));
    EXPECT_EQ(text, sum) << name;
  }
  EXPECT_EQ(lines, source.tensors->tensors().size());
}

TEST(SmolLM2, Tokenizer) {
  const std::string path = smollm2_gguf();
  HB_SKIP_WITHOUT(path, "the SmolLM2 GGUF");
  HB_ASSERT_OK(const TokenizerSource source, open_tokenizer_source(path));
  ASSERT_TRUE(source.vocab.has_value());
  EXPECT_EQ(source.vocab->tokens.size(), 49152u);
  EXPECT_EQ(source.vocab->merges.size(), 48900u);
  EXPECT_EQ(source.vocab->pre, "smollm");
  EXPECT_EQ(source.vocab->added.size(), 17u);
  EXPECT_EQ(source.bos_token, "<|im_start|>");
  EXPECT_EQ(source.eos_token, "<|im_end|>");
  EXPECT_FALSE(source.vocab->add_bos);
  ASSERT_NE(source.chat_template(), nullptr);
  EXPECT_THAT(source.chat_template()->source, ::testing::HasSubstr("<|im_start|>"));
}

}  // namespace
}  // namespace halfbyte
