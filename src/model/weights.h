// A model's weights as the decoder reads them: packed for the chosen kernels, one struct a layer.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "halfbyte/plan.h"
#include "kernels/api.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace halfbyte {

struct PackedLinear {
  std::string name;                             // "layers.0.self_attn.q_proj", "lm_head"
  LinearPlan plan;                              // what it was asked to be
  const LinearKernel* kernel = nullptr;         // for decode rows
  const LinearKernel* prompt_kernel = nullptr;  // for prompt rows, over the same packed weights; often the same
  int64_t n = 0;                                // out features
  int64_t k = 0;                                // in features
  Buffer packed;                                // the kernel's layout
  float tensor_scale = 1.0f;                    // alpha_w
  float activation_scale = 0.0f;                // alpha_x; 0: made from each row
  std::vector<float> bias;                      // [n] or empty
  // [k]: x is multiplied by it first (AWQ); null: not. Linears with one input and equal vectors share it.
  std::shared_ptr<const std::vector<float>> pre_scale;

  // True when both round the same input to the same bytes, so that it need be done only once.
  bool same_input_as(const PackedLinear& other) const {
    return kernel == other.kernel && prompt_kernel == other.prompt_kernel && k == other.k &&
           activation_scale == other.activation_scale && pre_scale == other.pre_scale;
  }
  const LinearKernel& kernel_for(RowRole role) const { return role == RowRole::kPrompt ? *prompt_kernel : *kernel; }
};

struct LayerWeights {
  std::vector<float> attention_norm;  // [hidden]
  PackedLinear q;                     // [heads * head_dim, hidden]
  PackedLinear k, v;                  // [kv_heads * head_dim, hidden]
  std::vector<float> q_norm, k_norm;  // [head_dim], or empty without qk_norm
  float key_scale = 1.0f;             // of the cache's FP8 and 4-bit formats
  float value_scale = 1.0f;
  PackedLinear o;               // [hidden, heads * head_dim]
  std::vector<float> mlp_norm;  // [hidden]
  PackedLinear gate, up;        // [intermediate, hidden]
  PackedLinear down;            // [hidden, intermediate]
};

// The embedding's rows: as the file stores them when that is no larger than BF16, so that loading copies and a token
// decodes one row; else BF16 or FP32.
struct EmbeddingWeights {
  WeightKind kind = WeightKind::kBF16;  // what a row is rounded to
  DType stored = DType::kBF16;
  int64_t vocab = 0;
  int64_t hidden = 0;
  Buffer rows;  // [vocab] rows of `hidden` elements of type `stored`

  void read(int32_t token, float* out) const;  // out: [hidden]
};

struct ModelWeights {
  EmbeddingWeights embedding;
  std::vector<LayerWeights> layers;
  std::vector<float> final_norm;  // [hidden]
  PackedLinear head;              // [vocab, hidden]; a tied head has its own packed copy
};

}  // namespace halfbyte
