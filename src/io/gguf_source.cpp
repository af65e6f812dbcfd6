// GGUF tensor names and orders -> Hugging Face names and orders, for the llama, qwen2 and qwen3 architectures.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "io/dequantize.h"
#include "io/gguf.h"
#include "io/mapped_tensors.h"
#include "io/mapping_guard.h"
#include "io/message.h"

namespace halfbyte {
namespace {

constexpr std::string_view kRopeFreqs = "rope_freqs.weight";

constexpr std::pair<std::string_view, std::string_view> kModelParts[] = {
    {"token_embd", "model.embed_tokens"}, {"output_norm", "model.norm"}, {"output", "lm_head"}};

constexpr std::pair<std::string_view, std::string_view> kLayerParts[] = {
    {"attn_norm", "input_layernorm"},    {"ffn_norm", "post_attention_layernorm"},
    {"attn_q", "self_attn.q_proj"},      {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},      {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"}, {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_gate", "mlp.gate_proj"},       {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"}};

template <size_t N>
std::optional<std::string_view> lookup(const std::pair<std::string_view, std::string_view> (&table)[N],
                                       std::string_view key) {
  for (const auto& [from, to] : table) {
    if (from == key) return to;
  }
  return std::nullopt;
}

// "blk.12.attn_q.weight" -> "model.layers.12.self_attn.q_proj.weight"; nothing for a name outside the three
// architectures.
std::optional<std::string> hugging_face_name(std::string_view name, int64_t layers) {
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return std::nullopt;
  const std::string_view kind = name.substr(dot + 1), part = name.substr(0, dot);
  // llama.cpp keeps ModelOpt's scale of a linear's inputs beside an NVFP4 weight.
  if (kind != "weight" && kind != "bias" && kind != "input_scale") return std::nullopt;
  if (!part.starts_with("blk.")) {
    const auto to = lookup(kModelParts, part);
    return to ? std::optional(std::string(*to) + "." + std::string(kind)) : std::nullopt;
  }
  const std::string_view rest = part.substr(4);
  int64_t layer = -1;
  const auto [end, failure] = std::from_chars(rest.data(), rest.data() + rest.size(), layer);
  const auto digits = static_cast<size_t>(end - rest.data());
  if (failure != std::errc() || layer < 0 || layer >= layers || digits >= rest.size() || rest[digits] != '.')
    return std::nullopt;
  if (std::to_string(layer) != rest.substr(0, digits)) return std::nullopt;  // "00" would be a second name for layer 0
  const auto to = lookup(kLayerParts, rest.substr(digits + 1));
  if (!to) return std::nullopt;
  return "model.layers." + std::to_string(layer) + "." + std::string(*to) + "." + std::string(kind);
}

// llama.cpp stores the q and k rows of the llama architecture for rope over neighbouring pairs; heads > 0 then.
int64_t interleaved_heads(std::string_view hf_name, const HfConfig& config) {
  if (config.model_type != "llama") return 0;
  if (hf_name.find(".self_attn.q_proj.") != std::string_view::npos) return config.num_heads;
  if (hf_name.find(".self_attn.k_proj.") != std::string_view::npos) return config.num_kv_heads;
  return 0;
}

Result<std::vector<float>> read_rope_freqs(const GgufFile& file, std::span<const std::byte> bytes) {
  std::vector<float> out;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name != kRopeFreqs) continue;
    if (tensor.dtype != DType::kF32 || tensor.shape.rank() != 1 || tensor.shape[0] > 4096) {
      return invalid_data(file.name() + ": tensor 'rope_freqs.weight' is " + tensor.shape.text() + " " +
                          std::string(dtype_info(tensor.dtype).name) + ", expected [head size / 2] F32");
    }
    out.resize(static_cast<size_t>(tensor.shape[0]));
    dequantize_row(tensor.dtype, bytes.subspan(tensor.begin, tensor.bytes), out);
  }
  return out;
}

using TensorsByName = std::map<std::string_view, const GgufTensor*>;

// "blk.0.ffn_up.weight", ".weight", ".scale" -> "blk.0.ffn_up.scale"; nothing for another ending.
std::optional<std::string> with_ending(std::string_view name, std::string_view from, std::string_view to) {
  if (!name.ends_with(from)) return std::nullopt;
  return std::string(name.substr(0, name.size() - from.size())) + std::string(to);
}

// The multiplier of an NVFP4 weight: one F32 in a tensor of its name with ".scale" in place of ".weight". 1 without one.
Result<float> weight_scale(const GgufFile& file, std::span<const std::byte> bytes, const TensorsByName& by_name,
                           const GgufTensor& weight) {
  float scale = 1.0f;
  const auto name = with_ending(weight.name, ".weight", ".scale");
  const auto found = name && weight.dtype == DType::kGgufNVFP4 ? by_name.find(*name) : by_name.end();
  if (found == by_name.end()) return scale;
  const GgufTensor& tensor = *found->second;
  if (tensor.dtype != DType::kF32 || tensor.shape.elements() != 1) {
    return invalid_data(file.name() + ": tensor " + quote(tensor.name) + " is " + tensor.shape.text() + " " +
                        std::string(dtype_info(tensor.dtype).name) + ", expected one F32");
  }
  dequantize_row(tensor.dtype, bytes.subspan(tensor.begin, tensor.bytes), std::span(&scale, 1));
  if (scale > 0.0f && std::isfinite(scale)) return scale;
  return invalid_data(file.name() + ": tensor " + quote(tensor.name) + " is " + std::to_string(scale) +
                      ", expected a finite number above 0");
}

// Whether a tensor is such a multiplier.
bool is_weight_scale(const TensorsByName& by_name, const GgufTensor& tensor) {
  const auto weight = with_ending(tensor.name, ".scale", ".weight");
  const auto found = weight ? by_name.find(*weight) : by_name.end();
  return found != by_name.end() && found->second->dtype == DType::kGgufNVFP4;
}

Status check_whole(const GgufFile& file) {
  HB_ASSIGN(const auto parts, file.integer("split.count", 0, INT32_MAX));
  if (parts && *parts > 1) {
    return unsupported(file.name() + ": is one of " + std::to_string(*parts) +
                       " parts of a split GGUF file, which is not supported; join them with llama-gguf-split --merge");
  }
  if (file.tensors().empty())
    return invalid_data(file.name() + ": holds no tensors (a vocabulary only?); expected a whole model");
  return {};
}

}  // namespace

Result<GgufModel> open_gguf(const std::string& path) {
  HB_ASSIGN(auto mapped, open_guarded(path));
  const std::span<const std::byte> bytes = mapped->bytes();
  HB_ASSIGN(const GgufFile file, GgufFile::parse(bytes, shown(path)));
  HB_TRY(check_whole(file));
  HB_ASSIGN(std::vector<float> rope_freqs, read_rope_freqs(file, bytes));
  GgufModel model;
  HB_ASSIGN(model.config, gguf_config(file, std::move(rope_freqs)));
  HB_ASSIGN(model.generation, gguf_generation_config(file));

  TensorsByName by_name;
  for (const GgufTensor& tensor : file.tensors()) by_name.emplace(tensor.name, &tensor);
  std::vector<MappedTensor> tensors;
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name == kRopeFreqs) continue;  // part of the configuration
    if (is_weight_scale(by_name, tensor)) continue;
    const auto name = hugging_face_name(tensor.name, model.config.num_layers);
    if (!name) {
      return unsupported(file.name() + ": tensor " + quote(tensor.name) + " is not part of a " +
                         model.config.model_type + " model of " + std::to_string(model.config.num_layers) +
                         " layers as Halfbyte knows it");
    }
    MappedTensor out;
    out.info = {*name, tensor.name, tensor.dtype, tensor.shape, tensor.bytes};
    out.begin = tensor.begin;
    HB_ASSIGN(out.scale, weight_scale(file, bytes, by_name, tensor));
    out.interleaved_heads = interleaved_heads(*name, model.config);
    if (out.interleaved_heads > 0 && (tensor.shape.rank() == 0 || tensor.shape[0] % (2 * out.interleaved_heads) != 0)) {
      return invalid_data(file.name() + ": tensor " + quote(tensor.name) + ": has shape " + tensor.shape.text() +
                          ", expected rows for " + std::to_string(out.interleaved_heads) + " heads of an even size");
    }
    tensors.push_back(std::move(out));
  }
  model.tensors = std::make_shared<MappedTensors>("GGUF v" + std::to_string(file.version()), path,
                                                  std::vector{std::move(mapped)}, std::move(tensors));
  return model;
}

}  // namespace halfbyte
