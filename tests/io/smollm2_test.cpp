// The real file that the quickstart uses: SmolLM2-135M-Instruct as Q4_1 GGUF.
#include <gtest/gtest.h>

#include "io/model_source.h"
#include "support/shared_data.h"

namespace halfbyte {
namespace {

using testing::smollm2_gguf;

TEST(SmolLM2, ReadsConfiguration) {
  const std::string path = smollm2_gguf();
  HB_SKIP_WITHOUT(path, "the SmolLM2 GGUF");
  const auto source = open_model_source(path);
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_EQ(source->kind(), "GGUF v3");
  const HfConfig& config = source->config;
  EXPECT_EQ(config.model_type, "llama");
  EXPECT_EQ(config.hidden_size, 576);
  EXPECT_EQ(config.intermediate_size, 1536);
  EXPECT_EQ(config.num_layers, 30);
  EXPECT_EQ(config.num_heads, 9);
  EXPECT_EQ(config.num_kv_heads, 3);
  EXPECT_EQ(config.head_dim, 64);
  EXPECT_EQ(config.vocab_size, 49152);
  EXPECT_EQ(config.max_position_embeddings, 8192);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.rope.theta, 100000.0);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_EQ(config.eos_token_ids, std::vector<int64_t>{2});
  EXPECT_EQ(source->tensors->tensors().size(), 272u);
}

}  // namespace
}  // namespace halfbyte
