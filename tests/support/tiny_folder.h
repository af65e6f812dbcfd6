// A tiny Hugging Face folder: BF16 weights, configuration, tokenizer files. For tests.
#pragma once

#include <bit>
#include <string>

#include "support/gguf_file.h"
#include "support/safetensors_file.h"
#include "support/temp_folder.h"

namespace halfbyte::testing {

// The upper halves of FP32 values: cut, not rounded, which is as good for random weights.
inline std::string bf16_bytes(const std::vector<float>& values) {
  std::vector<uint16_t> out;
  for (const float v : values) out.push_back(static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16));
  return bytes_of(out);
}

inline std::string tiny_config(const TinyModel& m) {
  const auto number = [](int64_t n) { return std::to_string(n); };
  const std::string name = m.arch == "llama" ? "Llama" : m.arch == "qwen2" ? "Qwen2" : "Qwen3";
  return "{\"architectures\":[\"" + name + "ForCausalLM\"],\"model_type\":\"" + m.arch +
         "\",\"hidden_size\":" + number(m.hidden) + ",\"intermediate_size\":" + number(m.intermediate) +
         ",\"num_hidden_layers\":" + number(m.layers) + ",\"num_attention_heads\":" + number(m.heads) +
         ",\"num_key_value_heads\":" + number(m.kv_heads) + ",\"head_dim\":" + number(m.head_dim) +
         ",\"vocab_size\":" + number(m.vocab) +
         ",\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,\"eos_token_id\":0,\"tie_word_embeddings\":" +
         (m.tied ? "true" : "false") + ",\"torch_dtype\":\"float32\",\"made_by\":\"a test\"}";
}

// dtype: "BF16" or "F32".
inline SafetensorsFile tiny_weights(const TinyModel& m, const std::string& dtype = "BF16") {
  SafetensorsFile file;
  uint32_t seed = 1;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    size_t count = 1;
    for (const int64_t d : shape) count *= static_cast<size_t>(d);
    const std::vector<float> values = tiny_values(count, seed++);
    file.add(name, dtype, shape, dtype == "F32" ? bytes_of(values) : bf16_bytes(values));
  };
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  add("model.embed_tokens.weight", {m.vocab, m.hidden});
  for (int64_t i = 0; i < m.layers; ++i) {
    const std::string p = "model.layers." + std::to_string(i) + ".";
    add(p + "input_layernorm.weight", {m.hidden});
    add(p + "self_attn.q_proj.weight", {q, m.hidden});
    add(p + "self_attn.k_proj.weight", {kv, m.hidden});
    add(p + "self_attn.v_proj.weight", {kv, m.hidden});
    add(p + "self_attn.o_proj.weight", {m.hidden, q});
    if (m.qkv_bias) add(p + "self_attn.q_proj.bias", {q});
    if (m.qk_norm) add(p + "self_attn.q_norm.weight", {m.head_dim});
    if (m.qk_norm) add(p + "self_attn.k_norm.weight", {m.head_dim});
    add(p + "post_attention_layernorm.weight", {m.hidden});
    add(p + "mlp.gate_proj.weight", {m.intermediate, m.hidden});
    add(p + "mlp.up_proj.weight", {m.intermediate, m.hidden});
    add(p + "mlp.down_proj.weight", {m.hidden, m.intermediate});
  }
  add("model.norm.weight", {m.hidden});
  if (!m.tied) add("lm_head.weight", {m.vocab, m.hidden});
  return file;
}

inline void write_tiny_folder(const TempFolder& folder, const std::string& name, const TinyModel& m = {},
                              const std::string& dtype = "BF16") {
  std::filesystem::create_directory(folder / name);
  folder.write(name + "/config.json", tiny_config(m));
  folder.write(name + "/model.safetensors", tiny_weights(m, dtype).str());
  folder.write(name + "/tokenizer.json", "{\"a tokenizer\":1}");
  folder.write(name + "/tokenizer_config.json", "{\"eos_token\":\"x\"}");
  folder.write(name + "/chat_template.jinja", "{{ messages }}");
  folder.write(name + "/generation_config.json", "{\"eos_token_id\":0}");
  folder.write(name + "/LICENSE", "free");
  folder.write(name + "/README.md", "about the original");
}

}  // namespace halfbyte::testing
