// Small models with made-up weights, in memory, for tests of the engine. Widths are no multiples of 32 or 128 on
// purpose.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "halfbyte/model.h"
#include "model/synthetic.h"

namespace halfbyte::testing {

inline HfConfig tiny_config(const std::string& model_type) {
  HfConfig c;
  c.file = "the tiny test model";
  c.model_type = model_type;
  c.hidden_size = 40;
  c.intermediate_size = 72;
  c.num_layers = 2;
  c.num_heads = 4;
  c.num_kv_heads = 2;
  c.head_dim = 12;
  c.vocab_size = 131;
  c.max_position_embeddings = 256;
  c.tie_word_embeddings = model_type == "qwen3";
  c.attention_bias = false;
  return c;
}

// Null after a failed expectation.
inline std::shared_ptr<const Model> tiny_model(const std::string& model_type, const std::string& plan,
                                               const std::string& kernels = "", int64_t head_dim = 12) {
  LoadOptions options;
  auto parsed = parse_plan(plan);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  if (!parsed.ok()) return nullptr;
  options.plan = *parsed;
  options.kernels = kernels;
  options.threads = 1;
  HfConfig config = tiny_config(model_type);
  config.head_dim = head_dim;
  auto model = Model::from_source(synthetic_source(config, model_type), options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

}  // namespace halfbyte::testing
