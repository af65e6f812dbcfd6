// GGUF files for tests. Everything can be set wrong on purpose: counts, types, offsets and lengths are what the caller
// says.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace halfbyte::testing {

template <class T>
std::string little(T value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}
inline std::string gguf_string(const std::string& text) {
  return little<uint64_t>(text.size()) + text;
}

class GgufBuilder {
 public:
  uint32_t version = 3;
  std::string magic = "GGUF";
  std::optional<uint64_t> tensor_count, key_count;  // instead of the true ones
  uint64_t alignment = 32;                          // of the data; state general.alignment as a key too

  // A metadata key with the type's number and the value's bytes.
  GgufBuilder& raw_key(const std::string& key, uint32_t type, const std::string& bytes) {
    keys_ += gguf_string(key) + little(type) + bytes;
    ++keys_count_;
    return *this;
  }
  GgufBuilder& u32(const std::string& key, uint32_t v) { return raw_key(key, 4, little(v)); }
  GgufBuilder& i32(const std::string& key, int32_t v) { return raw_key(key, 5, little(v)); }
  GgufBuilder& f32(const std::string& key, float v) { return raw_key(key, 6, little(v)); }
  GgufBuilder& boolean(const std::string& key, bool v) { return raw_key(key, 7, std::string(1, v ? '\1' : '\0')); }
  GgufBuilder& text(const std::string& key, const std::string& v) { return raw_key(key, 8, gguf_string(v)); }
  GgufBuilder& texts(const std::string& key, const std::vector<std::string>& v) {
    std::string bytes = little<uint32_t>(8) + little<uint64_t>(v.size());
    for (const std::string& s : v) bytes += gguf_string(s);
    return raw_key(key, 9, bytes);
  }
  GgufBuilder& f32s(const std::string& key, const std::vector<float>& v) {
    std::string bytes = little(uint32_t{6}) + little(static_cast<uint64_t>(v.size()));
    for (const float x : v) bytes += little(x);
    return raw_key(key, 9, bytes);
  }
  GgufBuilder& i32s(const std::string& key, const std::vector<int32_t>& v) {
    std::string bytes = little<uint32_t>(5) + little<uint64_t>(v.size());
    for (const int32_t x : v) bytes += little(x);
    return raw_key(key, 9, bytes);
  }

  // dims innermost first, as the file stores them. type: ggml's number (0 F32, 1 F16, 2 Q4_0, 3 Q4_1, 8 Q8_0, 30 BF16).
  GgufBuilder& tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type,
                      const std::string& bytes) {
    while (data_.size() % alignment != 0) data_ += '\0';
    raw_tensor(name, dims, type, data_.size());
    data_ += bytes;
    return *this;
  }
  // Only the entry of the table.
  GgufBuilder& raw_tensor(const std::string& name, const std::vector<uint64_t>& dims, uint32_t type, uint64_t offset) {
    tensors_ += gguf_string(name) + little(static_cast<uint32_t>(dims.size()));
    for (const uint64_t d : dims) tensors_ += little(d);
    tensors_ += little(type) + little(offset);
    ++tensors_count_;
    return *this;
  }
  GgufBuilder& f32_tensor(const std::string& name, const std::vector<uint64_t>& dims,
                          const std::vector<float>& values) {
    return tensor(name, dims, 0, {reinterpret_cast<const char*>(values.data()), values.size() * 4});
  }

  std::string str() const {
    std::string out = magic + little(version) + little(tensor_count.value_or(tensors_count_)) +
                      little(key_count.value_or(keys_count_)) + keys_ + tensors_;
    if (tensors_count_ > 0) {
      while (out.size() % alignment != 0) out += '\0';
    }
    return out + data_;
  }

 private:
  std::string keys_, tensors_, data_;
  uint64_t keys_count_ = 0, tensors_count_ = 0;
};

// The shape of a tiny model; every field may be changed before use.
struct TinyModel {
  std::string arch = "llama";
  int64_t hidden = 32, intermediate = 64, layers = 2, heads = 4, kv_heads = 2, head_dim = 8, vocab = 24;
  bool tied = true;
  bool qkv_bias = false, qk_norm = false;
  bool bf16 = false;  // matrices in BF16, the lower bits of the values cut off
};

// Deterministic values in (-1, 1), different for every seed.
inline std::vector<float> tiny_values(size_t count, uint32_t seed) {
  std::vector<float> out(count);
  uint32_t state = seed * 2654435761u + 12345u;
  for (float& v : out) {
    state = state * 1664525u + 1013904223u;
    v = static_cast<float>(static_cast<int32_t>(state >> 8) - (1 << 23)) / static_cast<float>(1 << 23);
  }
  return out;
}

// Metadata of a tiny model with a byte-level vocabulary of `vocab` tokens.
inline void add_tiny_metadata(GgufBuilder& file, const TinyModel& m) {
  const std::string a = m.arch + ".";
  file.text("general.architecture", m.arch)
      .u32(a + "block_count", static_cast<uint32_t>(m.layers))
      .u32(a + "context_length", 128)
      .u32(a + "embedding_length", static_cast<uint32_t>(m.hidden))
      .u32(a + "feed_forward_length", static_cast<uint32_t>(m.intermediate))
      .u32(a + "attention.head_count", static_cast<uint32_t>(m.heads))
      .u32(a + "attention.head_count_kv", static_cast<uint32_t>(m.kv_heads))
      .u32(a + "attention.key_length", static_cast<uint32_t>(m.head_dim))
      .f32(a + "rope.freq_base", 10000.0f)
      .f32(a + "attention.layer_norm_rms_epsilon", 1e-5f);
  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  for (int64_t i = 0; i < m.vocab; ++i) {
    tokens.push_back(i == 0 ? "<|end|>" : std::string(1, static_cast<char>('a' + i - 1)));
    types.push_back(i == 0 ? 3 : 1);
  }
  file.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "smollm").texts("tokenizer.ggml.tokens", tokens);
  file.i32s("tokenizer.ggml.token_type", types).texts("tokenizer.ggml.merges", {"a b"});
  file.u32("tokenizer.ggml.eos_token_id", 0);
}

inline void add_tiny_tensors(GgufBuilder& file, const TinyModel& m) {
  uint32_t seed = 1;
  const auto add = [&](const std::string& name, std::vector<int64_t> dims) {
    size_t count = 1;
    std::vector<uint64_t> sizes;
    for (const int64_t d : dims) {
      count *= static_cast<size_t>(d);
      sizes.push_back(static_cast<uint64_t>(d));
    }
    const std::vector<float> values = tiny_values(count, seed++);
    if (!m.bf16 || dims.size() < 2) {
      file.f32_tensor(name, sizes, values);
      return;
    }
    std::string bytes;
    for (const float v : values) bytes += little(static_cast<uint16_t>(std::bit_cast<uint32_t>(v) >> 16));
    file.tensor(name, sizes, 30, bytes);
  };
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  add("token_embd.weight", {m.hidden, m.vocab});
  for (int64_t i = 0; i < m.layers; ++i) {
    const std::string b = "blk." + std::to_string(i) + ".";
    add(b + "attn_norm.weight", {m.hidden});
    add(b + "attn_q.weight", {m.hidden, q});
    add(b + "attn_k.weight", {m.hidden, kv});
    add(b + "attn_v.weight", {m.hidden, kv});
    add(b + "attn_output.weight", {q, m.hidden});
    if (m.qkv_bias) {
      add(b + "attn_q.bias", {q});
      add(b + "attn_k.bias", {kv});
      add(b + "attn_v.bias", {kv});
    }
    if (m.qk_norm) {
      add(b + "attn_q_norm.weight", {m.head_dim});
      add(b + "attn_k_norm.weight", {m.head_dim});
    }
    add(b + "ffn_norm.weight", {m.hidden});
    add(b + "ffn_gate.weight", {m.hidden, m.intermediate});
    add(b + "ffn_up.weight", {m.hidden, m.intermediate});
    add(b + "ffn_down.weight", {m.intermediate, m.hidden});
  }
  add("output_norm.weight", {m.hidden});
  if (!m.tied) add("output.weight", {m.hidden, m.vocab});
}

inline std::string tiny_gguf(const TinyModel& model = {}) {
  GgufBuilder file;
  add_tiny_metadata(file, model);
  add_tiny_tensors(file, model);
  return file.str();
}

}  // namespace halfbyte::testing
