// What the decoder needs to know about a model: dimensions and facts, architecture differences already resolved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "io/hf_config.h"

namespace halfbyte {

struct ModelConfig {
  std::string architecture;  // "llama", "qwen2", "qwen3"
  int64_t hidden = 0;        // width of the residual stream
  int64_t intermediate = 0;  // width of the MLP
  int64_t layers = 0;
  int64_t heads = 0;     // query heads
  int64_t kv_heads = 0;  // divides heads
  int64_t head_dim = 0;  // even
  int64_t vocab = 0;
  int64_t context = 0;  // longest sequence the model was made for, tokens
  float rms_norm_eps = 1e-6f;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;    // RMSNorm over each head of q and k, before RoPE
  bool tied_head = false;  // lm_head is the embedding
  RopeFacts rope;
  std::vector<int32_t> stop_tokens;  // end of text: generation_config.json's, else config.json's
  GenerationConfig generation;       // the maker's sampling defaults

  int64_t q_width() const { return heads * head_dim; }
  int64_t kv_width() const { return kv_heads * head_dim; }
  int64_t group() const { return heads / kv_heads; }  // query heads that share one KV head
};

// What a user should know of the two, a line each: they contradict each other, or say what has no effect. `from` is what
// messages call the second.
std::vector<std::string> config_notes(const HfConfig& facts, const GenerationConfig& generation, std::string_view from);

// kUnsupported for an architecture that is not in architectures.h.
Result<ModelConfig> make_model_config(const HfConfig& facts, const GenerationConfig& generation);

}  // namespace halfbyte
