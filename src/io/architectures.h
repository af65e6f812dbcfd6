// The supported decoder architectures. They differ in a handful of facts, which are data here and never an `if` on a
// name elsewhere. A new architecture of the same family is one more row.
#pragma once

#include <string_view>

namespace halfbyte {

enum class BiasRule {
  kConfig,  // attention_bias in config.json: q, k, v and o
  kQkv,     // always on q, k and v, never on o
};

struct Architecture {
  std::string_view name;        // config.json model_type, GGUF general.architecture
  std::string_view class_name;  // config.json architectures[0]
  BiasRule attention_bias;
  bool qk_norm;  // q_norm and k_norm over each head, before RoPE
};

inline constexpr Architecture kArchitectures[] = {
    {"llama", "LlamaForCausalLM", BiasRule::kConfig, /*qk_norm=*/false},
    {"qwen2", "Qwen2ForCausalLM", BiasRule::kQkv, /*qk_norm=*/false},
    {"qwen3", "Qwen3ForCausalLM", BiasRule::kConfig, /*qk_norm=*/true},
};

// Null for a name that is not supported.
constexpr const Architecture* find_architecture(std::string_view name) {
  for (const Architecture& a : kArchitectures)
    if (a.name == name) return &a;
  return nullptr;
}

// Whether the linears of a model have biases; `attention_bias` as config.json says.
constexpr bool has_qkv_bias(const Architecture& a, bool attention_bias) {
  return a.attention_bias == BiasRule::kQkv || attention_bias;
}
constexpr bool has_o_bias(const Architecture& a, bool attention_bias) {
  return a.attention_bias == BiasRule::kConfig && attention_bias;
}

}  // namespace halfbyte
