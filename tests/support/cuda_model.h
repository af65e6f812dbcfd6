// Small models with made-up weights for tests of the engine on a CUDA device. Widths are no multiples of 128 on purpose.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "halfbyte/model.h"
#include "model/synthetic.h"

namespace halfbyte::testing {

inline constexpr int32_t kCudaVocab = 1031;

// A device runs heads of 64 and of 128: "llama" has the first, "qwen3" the second.
inline HfConfig cuda_config(const std::string& model_type) {
  HfConfig c;
  c.file = "the test model";
  c.model_type = model_type;
  c.hidden_size = 320;
  c.intermediate_size = 712;
  c.num_layers = 3;
  c.num_heads = 6;
  c.num_kv_heads = 2;
  c.head_dim = model_type == "qwen3" ? 128 : 64;
  c.vocab_size = kCudaVocab;
  c.max_position_embeddings = 2048;
  c.tie_word_embeddings = true;
  return c;
}

// In the weights' normal form, as a device takes them. Null after a failed expectation.
inline std::shared_ptr<const Model> cuda_model(const std::string& model_type, const std::string& plan) {
  LoadOptions options;
  options.kernels = "ref";
  options.threads = 2;
  auto parsed = parse_plan(plan);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  if (!parsed.ok()) return nullptr;
  options.plan = *parsed;
  auto model = Model::from_source(synthetic_source(cuda_config(model_type), model_type), options);
  EXPECT_TRUE(model.ok()) << model.status().message();
  return model.ok() ? *model : nullptr;
}

}  // namespace halfbyte::testing
