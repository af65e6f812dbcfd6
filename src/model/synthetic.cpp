#include "model/synthetic.h"

#include <algorithm>
#include <cmath>

#include "base/quote.h"
#include "base/rng.h"
#include "io/architectures.h"

namespace halfbyte {
namespace {

struct NamedShape {
  const char* name;
  const char* model_type;
  int64_t hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, context;
  bool tied;
};

// From the models' config.json files.
constexpr NamedShape kShapes[] = {
    {"tiny", "qwen3", 64, 160, 2, 4, 2, 16, 320, 512, true},
    {"smollm2-135m", "llama", 576, 1536, 30, 9, 3, 64, 49152, 8192, true},
    {"qwen3-0.6b", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, 40960, true},
    {"qwen2.5-1.5b", "qwen2", 1536, 8960, 28, 12, 2, 128, 151936, 131072, true},
    {"qwen3-1.7b", "qwen3", 2048, 6144, 28, 16, 8, 128, 151936, 40960, true},
    {"qwen3-8b", "qwen3", 4096, 12288, 36, 32, 8, 128, 151936, 40960, false},
    {"qwen3-14b", "qwen3", 5120, 17408, 40, 40, 8, 128, 151936, 40960, false},
    {"qwen3-32b", "qwen3", 5120, 25600, 64, 64, 8, 128, 151936, 40960, false},
    {"llama3.1-8b", "llama", 4096, 14336, 32, 32, 8, 128, 128256, 131072, false},
};

// Tensors whose elements are a function of (tensor, row, column): nothing is stored.
class SyntheticTensors final : public TensorSource {
 public:
  SyntheticTensors(const HfConfig& c, const Architecture& arch, std::string name)
      : path_("synthetic " + std::move(name)) {
    const int64_t q = c.num_heads * c.head_dim, kv = c.num_kv_heads * c.head_dim;
    const bool qk_norm = arch.qk_norm, qkv_bias = has_qkv_bias(arch, c.attention_bias);
    add("model.embed_tokens.weight", {c.vocab_size, c.hidden_size});
    add("model.norm.weight", {c.hidden_size});
    if (!c.tie_word_embeddings) add("lm_head.weight", {c.vocab_size, c.hidden_size});
    for (int64_t i = 0; i < c.num_layers; ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      add(layer + "input_layernorm.weight", {c.hidden_size});
      add(layer + "post_attention_layernorm.weight", {c.hidden_size});
      if (qk_norm) {
        add(layer + "self_attn.q_norm.weight", {c.head_dim});
        add(layer + "self_attn.k_norm.weight", {c.head_dim});
      }
      add_linear(layer + "self_attn.q_proj", q, c.hidden_size, qkv_bias);
      add_linear(layer + "self_attn.k_proj", kv, c.hidden_size, qkv_bias);
      add_linear(layer + "self_attn.v_proj", kv, c.hidden_size, qkv_bias);
      add_linear(layer + "self_attn.o_proj", c.hidden_size, q, has_o_bias(arch, c.attention_bias));
      add_linear(layer + "mlp.gate_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
      add_linear(layer + "mlp.up_proj", c.intermediate_size, c.hidden_size, c.mlp_bias);
      add_linear(layer + "mlp.down_proj", c.hidden_size, c.intermediate_size, c.mlp_bias);
    }
    std::sort(tensors_.begin(), tensors_.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  }

  std::string describe() const override { return "synthetic weights"; }
  const std::string& path() const override { return path_; }
  std::span<const TensorInfo> tensors() const override { return tensors_; }

  const TensorInfo* find(std::string_view name) const override {
    const auto at = std::lower_bound(tensors_.begin(), tensors_.end(), name,
                                     [](const TensorInfo& t, std::string_view n) { return t.name < n; });
    return at != tensors_.end() && at->name == name ? &*at : nullptr;
  }

  Result<std::span<const std::byte>> bytes(const TensorInfo& tensor) const override {
    return error(tensor, "synthetic tensors have no stored bytes");
  }
  std::shared_ptr<const void> owner(const TensorInfo&) const override { return nullptr; }

  // Uniform in +-sqrt(3 / k), so that a row has unit norm and a linear keeps the size of its input; norm weights
  // near 1.
  Status read_rows(const TensorInfo& tensor, int64_t first, int64_t rows, std::span<float> out) const override {
    const bool is_vector = tensor.shape.rank() == 1;
    const int64_t columns = is_vector ? tensor.shape[0] : tensor.shape[1];
    const bool is_norm = tensor.name.ends_with("norm.weight");
    const float width = is_vector ? 0.1f : std::sqrt(3.0f / static_cast<float>(columns));
    const float middle = is_norm ? 1.0f : 0.0f;
    const auto index = static_cast<uint32_t>(&tensor - tensors_.data());
    for (int64_t r = 0; r < rows; ++r) {
      // One counter-based draw seeds a row; a xorshift fills it, because a draw an element would dominate loading.
      uint64_t state = philox_draw(/*seed=*/20, index, static_cast<uint64_t>(first + r)) | 1;
      float* row = out.data() + r * columns;
      for (int64_t i = 0; i < columns; ++i) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        const auto bits = static_cast<int32_t>(state >> 32);
        row[i] = middle + width * (static_cast<float>(bits) * 0x1p-31f);
      }
    }
    return {};
  }

  std::string label(const TensorInfo& tensor) const override { return path_ + ": tensor " + quote(tensor.name); }

 private:
  void add(std::string name, std::vector<int64_t> dims) {
    TensorInfo t;
    t.name = t.file_name = std::move(name);
    t.dtype = DType::kF32;
    t.shape.dims = std::move(dims);
    t.bytes = t.shape.elements().value_or(0) * sizeof(float);
    tensors_.push_back(std::move(t));
  }

  void add_linear(const std::string& module, int64_t n, int64_t k, bool bias) {
    add(module + ".weight", {n, k});
    if (bias) add(module + ".bias", {n});
  }

  std::string path_;
  std::vector<TensorInfo> tensors_;  // in name order
};

}  // namespace

std::vector<std::string> synthetic_shape_names() {
  std::vector<std::string> names;
  for (const NamedShape& shape : kShapes) names.emplace_back(shape.name);
  return names;
}

Result<ModelSource> synthetic_source(const std::string& shape) {
  std::string known;
  for (const NamedShape& s : kShapes) {
    known += (known.empty() ? "" : ", ") + std::string(s.name);
    if (shape != s.name) continue;
    HfConfig c;
    c.file = "the shape " + shape;
    c.model_type = s.model_type;
    c.hidden_size = s.hidden;
    c.intermediate_size = s.intermediate;
    c.num_layers = s.layers;
    c.num_heads = s.heads;
    c.num_kv_heads = s.kv_heads;
    c.head_dim = s.head_dim;
    c.vocab_size = s.vocab;
    c.max_position_embeddings = s.context;
    c.tie_word_embeddings = s.tied;
    return synthetic_source(c, shape);
  }
  return invalid_argument("synthetic shape " + quote(shape) + " is not known, expected one of " + known);
}

ModelSource synthetic_source(const HfConfig& config, const std::string& name) {
  ModelSource source;
  source.path = "synthetic " + name;
  source.tensors = std::make_shared<SyntheticTensors>(config, *find_architecture(config.model_type), name);
  source.config = config;
  return source;
}

}  // namespace halfbyte
