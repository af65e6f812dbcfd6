// Writes the tensors of a source as a Hugging Face folder: config.json and model.safetensors, in FP32 or BF16 (cut, not
// rounded). For tests only.
#pragma once

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "io/model_source.h"

namespace halfbyte::testing {

inline std::string hf_config_json(const HfConfig& c) {
  const auto number = [](const char* key, auto value) {
    return std::string("\"") + key + "\": " + std::to_string(value) + ",\n";
  };
  const auto flag = [](const char* key, bool value) {
    return std::string("\"") + key + "\": " + (value ? "true" : "false") + ",\n";
  };
  return "{\n" + number("hidden_size", c.hidden_size) + number("intermediate_size", c.intermediate_size) +
         number("num_hidden_layers", c.num_layers) + number("num_attention_heads", c.num_heads) +
         number("num_key_value_heads", c.num_kv_heads) + number("head_dim", c.head_dim) +
         number("vocab_size", c.vocab_size) + number("max_position_embeddings", c.max_position_embeddings) +
         number("rms_norm_eps", c.rms_norm_eps) + number("rope_theta", c.rope.theta) +
         flag("attention_bias", c.attention_bias) + flag("mlp_bias", c.mlp_bias) +
         flag("tie_word_embeddings", c.tie_word_embeddings) + "\"hidden_act\": \"silu\",\n\"model_type\": \"" +
         c.model_type + "\"\n}\n";
}

struct StoredTensor {
  std::string name;
  std::vector<int64_t> dims;
  std::vector<float> values;
};

inline std::vector<StoredTensor> read_all(const TensorSource& source) {
  std::vector<StoredTensor> out;
  for (const TensorInfo& t : source.tensors()) {
    StoredTensor s{t.name, t.shape.dims, std::vector<float>(*t.shape.elements())};
    const int64_t rows = t.shape.rank() == 1 ? 1 : t.shape[0];
    if (const Status status = source.read_rows(t, 0, rows, s.values); !status.ok())
      throw std::runtime_error(status.message());
    out.push_back(std::move(s));
  }
  return out;
}

inline void write_safetensors(const std::string& path, const std::vector<StoredTensor>& tensors, bool bf16 = false) {
  std::string header = "{";
  uint64_t offset = 0;
  for (const StoredTensor& t : tensors) {
    std::string shape;
    for (const int64_t d : t.dims) shape += (shape.empty() ? "" : ",") + std::to_string(d);
    const uint64_t end = offset + t.values.size() * (bf16 ? 2 : 4);
    header += (header.size() > 1 ? "," : "") + ("\"" + t.name) + R"(":{"dtype":")" + (bf16 ? "BF16" : "F32") +
              R"(","shape":[)" + shape + R"(],"data_offsets":[)" + std::to_string(offset) + "," + std::to_string(end) +
              "]}";
    offset = end;
  }
  header += "}";
  while (header.size() % 8 != 0) header += ' ';
  std::ofstream out(path, std::ios::binary);
  const uint64_t length = header.size();
  out.write(reinterpret_cast<const char*>(&length), 8);
  out.write(header.data(), static_cast<std::streamsize>(header.size()));
  for (const StoredTensor& t : tensors)
    for (const float& value : t.values)
      out.write(reinterpret_cast<const char*>(&value) + (bf16 ? 2 : 0), bf16 ? 2 : 4);  // the upper half, little-endian
  if (!out) throw std::runtime_error(path + ": cannot write");
}

inline void write_model_folder(const std::string& folder, const HfConfig& config,
                               const std::vector<StoredTensor>& tensors, bool bf16 = false) {
  std::ofstream(folder + "/config.json") << hf_config_json(config);
  write_safetensors(folder + "/model.safetensors", tensors, bf16);
}

}  // namespace halfbyte::testing
