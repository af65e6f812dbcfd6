#include "parity/tiny_model.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string_view>

#include "base/rng.h"
#include "formats/bf16.h"
#include "io/hf_config.h"

namespace halfbyte::testing {
namespace {

struct TinyTensor {
  std::string name;
  std::vector<int64_t> shape;
};

std::vector<TinyTensor> tiny_tensors(const HfConfig& c) {
  std::vector<TinyTensor> out = {{"model.embed_tokens.weight", {c.vocab_size, c.hidden_size}}};
  const auto linear = [&](const std::string& name, int64_t n, int64_t k, bool bias) {
    out.push_back({name + ".weight", {n, k}});
    if (bias) out.push_back({name + ".bias", {n}});
  };
  for (int64_t i = 0; i < c.num_layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i);
    const bool qkv_bias = c.attention_bias || c.model_type == "qwen2";
    const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
    out.push_back({layer + ".input_layernorm.weight", {c.hidden_size}});
    linear(layer + ".self_attn.q_proj", q, c.hidden_size, qkv_bias);
    linear(layer + ".self_attn.k_proj", kv, c.hidden_size, qkv_bias);
    linear(layer + ".self_attn.v_proj", kv, c.hidden_size, qkv_bias);
    linear(layer + ".self_attn.o_proj", c.hidden_size, q, c.attention_bias);
    if (c.model_type == "qwen3") {
      out.push_back({layer + ".self_attn.q_norm.weight", {c.head_dim}});
      out.push_back({layer + ".self_attn.k_norm.weight", {c.head_dim}});
    }
    out.push_back({layer + ".post_attention_layernorm.weight", {c.hidden_size}});
    linear(layer + ".mlp.gate_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
    linear(layer + ".mlp.up_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
    linear(layer + ".mlp.down_proj", c.hidden_size, c.intermediate_size, c.mlp_bias);
  }
  out.push_back({"model.norm.weight", {c.hidden_size}});
  if (!c.tie_word_embeddings) out.push_back({"lm_head.weight", {c.vocab_size, c.hidden_size}});
  return out;
}

uint64_t fnv1a64(std::string_view bytes, uint64_t value = 0xCBF29CE484222325u) {
  for (const char c : bytes) value = (value ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return value;
}

// offset + gain * (factor) * v of the rule; products in FP32 from the left.
float rule_value(const TinyTensor& t, bool tied, float v) {
  const std::string_view name = t.name;
  if (name.ends_with("norm.weight")) return 1.0f + 0.25f * v;
  if (name.ends_with(".bias")) return 0.3f * v;
  if (name == "model.embed_tokens.weight" && !tied) return 0.6f * v;
  const auto a = static_cast<float>(std::sqrt(3.0 / static_cast<double>(t.shape[1])));
  const bool query_or_key = name.ends_with("q_proj.weight") || name.ends_with("k_proj.weight");
  const float gain = name == "lm_head.weight" ? 3.0f : query_or_key ? 1.5f : 1.0f;
  return gain * a * v;
}

std::string tensor_bytes(const std::string& model, const TinyTensor& t, bool tied) {
  const int64_t n = std::accumulate(t.shape.begin(), t.shape.end(), int64_t{1}, std::multiplies<>());
  const uint64_t key = fnv1a64(model + "/" + t.name);
  std::string bytes(static_cast<size_t>(n) * 2, '\0');
  PhiloxBlock words{};
  for (int64_t i = 0; i < n; ++i) {
    if (i % 4 == 0) {
      words = philox4x32_10({static_cast<uint32_t>(i / 4), 0, 0, 0},
                            {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)});
    }
    const float v = static_cast<float>(words[static_cast<size_t>(i % 4)] >> 8) * 0x1p-23f - 1.0f;
    const uint16_t bits = BF16::encode(rule_value(t, tied, v));
    std::memcpy(bytes.data() + 2 * i, &bits, 2);
  }
  return bytes;
}

}  // namespace

Result<uint64_t> write_tiny_model(const std::string& name, const std::string& folder) {
  const std::string source = std::string(HALFBYTE_SOURCE_DIR) + "/tests/parity/tiny/" + name + ".json";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(source, folder + "/config.json", std::filesystem::copy_options::overwrite_existing);
  HB_ASSIGN(const HfConfig config, read_hf_config(folder));

  std::string header, data;
  uint64_t fingerprint = fnv1a64("");
  for (const TinyTensor& t : tiny_tensors(config)) {
    const std::string bytes = tensor_bytes(name, t, config.tie_word_embeddings);
    std::string shape;
    for (const int64_t dim : t.shape) shape += (shape.empty() ? "" : ",") + std::to_string(dim);
    header += (header.empty() ? "{\"" : ",\"") + t.name + R"(":{"dtype":"BF16","shape":[)" + shape +
              R"(],"data_offsets":[)" + std::to_string(data.size()) + "," + std::to_string(data.size() + bytes.size()) +
              "]}";
    data += bytes;
    const size_t end = std::min<size_t>(64, bytes.size());
    fingerprint = fnv1a64(bytes.substr(0, end) + bytes.substr(bytes.size() - end), fingerprint);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t header_bytes = header.size();
  std::ofstream out(folder + "/model.safetensors", std::ios::binary);
  out.write(reinterpret_cast<const char*>(&header_bytes), 8);
  out << header << data;
  out.close();
  if (!out) return internal_error(folder + "/model.safetensors: cannot write; is the disk full?");
  return fingerprint;
}

}  // namespace halfbyte::testing
