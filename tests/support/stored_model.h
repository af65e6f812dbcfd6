// One small model with 4-bit linears, written as every tool writes it: ModelOpt, compressed-tensors, Quark, GGUF. The
// tensors of a folder can be changed before they are written. For tests only.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "support/gguf_file.h"
#include "support/safetensors_file.h"
#include "support/temp_folder.h"
#include "support/tiny_folder.h"
#include "tensor/quantize_tensor.h"

namespace halfbyte::testing {

struct FileTensor {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using FileTensors = std::map<std::string, FileTensor>;

inline std::string safetensors_of(const FileTensors& tensors) {
  SafetensorsFile file;
  for (const auto& [name, t] : tensors) file.add(name, t.dtype, t.shape, t.bytes);
  return file.str();
}

struct StoredModel {
  TinyModel shape;
  std::map<std::string, QuantLinear> linears;      // by module, all in one format
  std::map<std::string, std::vector<float>> rest;  // by tensor: norms, embedding, head
};

inline const std::vector<std::pair<std::string, std::string>>& stored_parts() {
  static const std::vector<std::pair<std::string, std::string>> parts = {
      // Hugging Face's name, GGUF's
      {"self_attn.q_proj", "attn_q"},      {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"}, {"mlp.gate_proj", "ffn_gate"},  {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  return parts;
}

// Random weights in NVFP4 or MXFP4. NVFP4's tensor scales are 1 / g with g a whole number, different for every linear
// (also within q, k, v), so that a file of divisors holds the same numbers as one of multipliers.
inline StoredModel stored_model(WeightFormat format) {
  StoredModel m;
  m.shape.arch = "qwen3";
  m.shape.hidden = 64;
  m.shape.intermediate = 128;
  m.shape.head_dim = 16;
  m.shape.vocab = 48;
  m.shape.tied = false;
  m.shape.qk_norm = true;
  ThreadPool pool(1);
  uint32_t seed = 1;
  float divisor = 2600;
  const auto linear = [&](const std::string& module, int64_t n, int64_t k) {
    std::vector<float> values = tiny_values(static_cast<size_t>(n * k), seed++);
    for (float& v : values) v *= v * v;  // blocks with different largest values
    QuantizeOptions options;
    options.format = format;
    auto w = quantize_weight(weight_source(module, values.data(), n, k), options, pool);
    if (!w.ok()) throw std::runtime_error(w.status().message());
    if (format == WeightFormat::kNVFP4) w->tensor_scale = 1.0f / (divisor += 7);
    m.linears.emplace(module, std::move(*w));
  };
  const auto rest = [&](const std::string& name, int64_t count, float scale) {
    std::vector<float> values = tiny_values(static_cast<size_t>(count), seed++);
    for (float& v : values) v = scale == 0 ? 1 + v / 8 : v * scale;
    m.rest.emplace(name, std::move(values));
  };
  const TinyModel& s = m.shape;
  const int64_t q = s.heads * s.head_dim, kv = s.kv_heads * s.head_dim;
  rest("model.embed_tokens.weight", s.vocab * s.hidden, 1.0f);
  rest("lm_head.weight", s.vocab * s.hidden, 0.2f);
  rest("model.norm.weight", s.hidden, 0);
  for (int64_t i = 0; i < s.layers; ++i) {
    const std::string p = "model.layers." + std::to_string(i) + ".";
    linear(p + "self_attn.q_proj", q, s.hidden);
    linear(p + "self_attn.k_proj", kv, s.hidden);
    linear(p + "self_attn.v_proj", kv, s.hidden);
    linear(p + "self_attn.o_proj", s.hidden, q);
    linear(p + "mlp.gate_proj", s.intermediate, s.hidden);
    linear(p + "mlp.up_proj", s.intermediate, s.hidden);
    linear(p + "mlp.down_proj", s.hidden, s.intermediate);
    rest(p + "input_layernorm.weight", s.hidden, 0);
    rest(p + "post_attention_layernorm.weight", s.hidden, 0);
    rest(p + "self_attn.q_norm.weight", s.head_dim, 0);
    rest(p + "self_attn.k_norm.weight", s.head_dim, 0);
  }
  return m;
}

// The same values in NVFP4: every MXFP4 weight whose exponents are not far apart has an exact NVFP4 form.
inline StoredModel as_nvfp4(const StoredModel& from) {
  StoredModel m = from;
  for (auto& [module, w] : m.linears) {
    const auto* exponents = w.block_scales.as<uint8_t>();
    int largest = 0;
    for (size_t i = 0; i < w.block_scales.size(); ++i) largest = std::max<int>(largest, exponents[i]);
    Buffer scales = Buffer::allocate(2 * w.block_scales.size());
    for (size_t i = 0; i < w.block_scales.size(); ++i) {
      const int e = exponents[i] - largest + 8;  // of an E4M3 power of two, 2^8 at most
      if (e < -6) throw std::runtime_error(module + ": exponents too far apart for this cast");
      for (size_t half = 0; half < 2; ++half)
        scales.mutable_as<uint8_t>()[2 * i + half] = static_cast<uint8_t>((e + 7) << 3);
    }
    w.block_scales = std::move(scales);
    w.format = WeightFormat::kNVFP4;
    w.tensor_scale = std::ldexp(1.0f, largest - 127 - 8);
  }
  return m;
}

enum class Tool { kModelOpt, kCompressedTensors, kQuark };

inline std::string bytes_of(const Buffer& buffer) {
  return {reinterpret_cast<const char*>(buffer.bytes().data()), buffer.size()};
}

inline FileTensors stored_tensors(const StoredModel& m, Tool tool) {
  FileTensors out;
  for (const auto& [name, values] : m.rest) {
    const auto count = static_cast<int64_t>(values.size());
    const bool matrix = count == m.shape.vocab * m.shape.hidden;
    const std::vector<int64_t> shape =
        matrix ? std::vector<int64_t>{m.shape.vocab, m.shape.hidden} : std::vector{count};
    out[name] = matrix ? FileTensor{"BF16", shape, bf16_bytes(values)} : FileTensor{"F32", shape, bytes_of(values)};
  }
  const bool compressed = tool == Tool::kCompressedTensors;
  for (const auto& [module, w] : m.linears) {
    const bool nvfp4 = w.format == WeightFormat::kNVFP4;
    out[module + (compressed ? ".weight_packed" : ".weight")] = {"U8", {w.n, w.k / 2}, bytes_of(w.codes)};
    out[module + ".weight_scale"] = {
        nvfp4 ? "F8_E4M3" : "U8", {w.n, w.k / (nvfp4 ? 16 : 32)}, bytes_of(w.block_scales)};
    if (w.input_scale) {
      const float scale = compressed ? 1.0f / *w.input_scale : *w.input_scale;
      out[module + (compressed ? ".input_global_scale" : ".input_scale")] = {"F32", {1}, bytes_of<float>({scale})};
    }
    if (!nvfp4) continue;
    if (compressed) {
      out[module + ".weight_global_scale"] = {"F32", {1}, bytes_of<float>({1.0f / w.tensor_scale})};
    } else {
      out[module + ".weight_scale_2"] = {"F32", {}, bytes_of<float>({w.tensor_scale})};
    }
  }
  return out;
}

// The quantization_config of config.json.
inline std::string quantization_section(WeightFormat format, Tool tool) {
  const bool nvfp4 = format == WeightFormat::kNVFP4;
  switch (tool) {
    case Tool::kModelOpt:
      return std::string(R"({"quant_method":"modelopt","quant_algo":")") + (nvfp4 ? "W4A16_NVFP4" : "mxfp4") +
             R"(","ignore":["lm_head"],"producer":{"name":"modelopt","version":"0.47.0"}})";
    case Tool::kCompressedTensors:
      return std::string(R"({"quant_method":"compressed-tensors","format":")") +
             (nvfp4 ? "nvfp4-pack-quantized" : "mxfp4-pack-quantized") +
             R"(","version":"0.20.1","ignore":["lm_head"],"config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"float","group_size":)" +
             (nvfp4 ? "16" : "32") + R"(},"input_activations":null}}})";
    case Tool::kQuark:
      return R"({"quant_method":"quark","exclude":["lm_head"],"global_quant_config":{"weight":{"dtype":"fp4","qscheme":"per_group","group_size":32,"scale_format":"e8m0"}}})";
  }
  return "";
}

inline void write_stored_folder(const TempFolder& folder, const TinyModel& shape, const FileTensors& tensors,
                                const std::string& section) {
  std::string config = tiny_config(shape);
  if (!section.empty()) config.insert(config.size() - 1, ",\"quantization_config\":" + section);
  folder.write("config.json", config);
  folder.write("model.safetensors", safetensors_of(tensors));
}

// Neighbouring nibbles to GGUF's order: the first half of a run in the low nibbles, the second in the high ones.
inline std::string gguf_codes(const uint8_t* codes, size_t elements) {
  const auto code = [&](size_t i) { return codes[i / 2] >> (i % 2 * 4) & 15; };
  std::string out;
  for (size_t i = 0; i < elements / 2; ++i) out.push_back(static_cast<char>(code(i) | code(i + elements / 2) << 4));
  return out;
}

inline std::string stored_gguf(const StoredModel& m) {
  GgufBuilder file;
  add_tiny_metadata(file, m.shape);
  const auto width = static_cast<uint64_t>(m.shape.hidden);
  const auto matrix = [&](const std::string& name, const std::string& hf) {
    file.tensor(name, {width, static_cast<uint64_t>(m.shape.vocab)}, 30, bf16_bytes(m.rest.at(hf)));
  };
  const auto vector = [&](const std::string& name, const std::string& hf) {
    const std::vector<float>& values = m.rest.at(hf);
    file.f32_tensor(name, {values.size()}, values);
  };
  matrix("token_embd.weight", "model.embed_tokens.weight");
  matrix("output.weight", "lm_head.weight");
  vector("output_norm.weight", "model.norm.weight");
  for (int64_t i = 0; i < m.shape.layers; ++i) {
    const std::string hf = "model.layers." + std::to_string(i) + ".", b = "blk." + std::to_string(i) + ".";
    vector(b + "attn_norm.weight", hf + "input_layernorm.weight");
    vector(b + "ffn_norm.weight", hf + "post_attention_layernorm.weight");
    vector(b + "attn_q_norm.weight", hf + "self_attn.q_norm.weight");
    vector(b + "attn_k_norm.weight", hf + "self_attn.k_norm.weight");
    for (const auto& [part, name] : stored_parts()) {
      const QuantLinear& w = m.linears.at(hf + part);
      const bool nvfp4 = w.format == WeightFormat::kNVFP4;
      const auto *codes = w.codes.as<uint8_t>(), *scales = w.block_scales.as<uint8_t>();
      std::string bytes;
      for (int64_t block = 0; block < w.n * w.k / (nvfp4 ? 64 : 32); ++block) {
        if (nvfp4) {
          bytes.append(reinterpret_cast<const char*>(scales), 4);
          for (size_t j = 0; j < 4; ++j, codes += 8) bytes += gguf_codes(codes, 16);
          scales += 4;
        } else {
          bytes.push_back(static_cast<char>(*scales++));
          bytes += gguf_codes(codes, 32);
          codes += 16;
        }
      }
      file.tensor(b + name + ".weight", {static_cast<uint64_t>(w.k), static_cast<uint64_t>(w.n)}, nvfp4 ? 40 : 39,
                  bytes);
      if (nvfp4) file.f32_tensor(b + name + ".scale", {1}, {w.tensor_scale});
      if (w.input_scale) file.f32_tensor(b + name + ".input_scale", {1}, {*w.input_scale});
    }
  }
  return file.str();
}

}  // namespace halfbyte::testing
