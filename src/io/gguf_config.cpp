#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "io/architectures.h"
#include "io/config_checks.h"
#include "io/gguf.h"
#include "io/message.h"
#include "io/rope_rule.h"

namespace halfbyte {
namespace {

// The file holds FP32 where config.json had a decimal: the shortest decimal of the FP32 is what was meant (1e-05, not
// 9.999999747378752e-06), and rounds to the same FP32.
double decimal_of(double number) {
  const auto single = static_cast<float>(number);
  if (static_cast<double>(single) != number) return number;
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, single).ptr;
  double decimal = number;
  std::from_chars(text, end, decimal);
  return decimal;
}

// "llama.rope.freq_base" and the like.
class ArchKeys {
 public:
  ArchKeys(const GgufFile& file, std::string arch) : file_(file), arch_(std::move(arch)) {}

  std::string key(const char* name) const { return arch_ + "." + name; }

  Status require(const char* name, int64_t min, int64_t max, int64_t& out) const {
    HB_ASSIGN(const auto value, file_.integer(key(name), min, max));
    if (!value)
      return invalid_data(file_.name() + ": has no metadata key " + quote(key(name)) + "; convert the model again");
    out = *value;
    return {};
  }
  Status optional(const char* name, int64_t min, int64_t max, int64_t& out) const {
    HB_ASSIGN(const auto value, file_.integer(key(name), min, max));
    if (value) out = *value;
    return {};
  }
  Status number(const char* name, double min, double max, double& out) const {
    HB_ASSIGN(const auto value, file_.number(key(name)));
    if (!value) return {};
    if (*value < min || *value > max) {
      return file_.error(key(name),
                         "is " + number_text(*value) + ", expected " + number_text(min) + " to " + number_text(max));
    }
    out = decimal_of(*value);
    return {};
  }

 private:
  const GgufFile& file_;
  std::string arch_;
};

const GgufTensor* find_tensor(const GgufFile& file, std::string_view name) {
  for (const GgufTensor& tensor : file.tensors()) {
    if (tensor.name == name) return &tensor;
  }
  return nullptr;
}

// One number for all layers; files of models whose layers differ hold an array.
Status read_heads(const GgufFile& file, const std::string& key, int64_t& out) {
  HB_ASSIGN(const auto values, file.integers(key));
  for (const int64_t value : values) {
    if (value < 1 || value > kMaxHeads) {
      return file.error(key, "is " + std::to_string(value) + ", expected 1 to " + std::to_string(kMaxHeads));
    }
    if (value != values.front()) {
      return unsupported(
          file.error(key, "differs between layers, which is not supported; expected one number for all layers")
              .message());
    }
    out = value;
  }
  return {};
}

// Llama 3.1 to 3.3 all use low 1, high 4 and 8192 positions, with factor 8 or 32: if that rule gives the file's
// factors, it is named, so that the configuration can be written as a config.json again.
void name_llama3_rule(HfConfig& config) {
  RopeFacts& rope = config.rope;
  RopeFacts guess = rope;
  guess.kind = RopeKind::kLlama3;
  guess.factor = rope.frequency_factors.back();
  guess.low_freq_factor = 1.0;
  guess.high_freq_factor = 4.0;
  guess.original_max_position = 8192;
  for (size_t i = 0; i < rope.frequency_factors.size(); ++i) {
    const double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(config.head_dim));
    // llama.cpp stores what the rule divides each frequency by.
    const double expected =
        frequency / llama3_frequency(guess, static_cast<double>(guess.original_max_position), frequency);
    if (!(std::abs(rope.frequency_factors[i] - expected) <= 1e-4 * expected)) return;
  }
  rope = std::move(guess);
}

Status read_scaling(const GgufFile& file, const ArchKeys& keys, HfConfig& config) {
  RopeFacts& rope = config.rope;
  HB_ASSIGN(const auto type, file.string(keys.key("rope.scaling.type")));
  HB_TRY(keys.number("rope.scaling.factor", 0.0, 1e6, rope.factor));
  if (rope.factor == 0.0) rope.factor = 1.0;  // llama.cpp writes 0 for "none"
  HB_TRY(keys.optional("rope.scaling.original_context_length", 1, kMaxPositions, rope.original_max_position));
  // Changes to the attention scale that other converters know and the rules here do not.
  for (const char* name : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor",
                           "rope.scaling.yarn_log_multiplier", "rope.scaling.alpha"}) {
    double value = 1.0;
    HB_TRY(keys.number(name, -1e6, 1e6, value));
    if (value != 1.0) {
      return unsupported(
          file.error(keys.key(name), "is " + number_text(value) + ", which is not supported; expected 1 or no such key")
              .message());
    }
  }
  if (!type || *type == "none") {
    rope.factor = 1.0;
  } else if (*type == "linear") {
    rope.kind = RopeKind::kLinear;
  } else if (*type == "yarn") {
    rope.kind = RopeKind::kYarn;
    HB_TRY(keys.number("rope.scaling.yarn_beta_fast", 1e-3, 1e6, rope.beta_fast));
    HB_TRY(keys.number("rope.scaling.yarn_beta_slow", 1e-3, 1e6, rope.beta_slow));
  } else {
    return unsupported(file.error(keys.key("rope.scaling.type"),
                                  "is " + quote(*type) + ", which is not supported; supported: none, linear, yarn")
                           .message());
  }
  if (rope.factor < 1.0)
    return file.error(keys.key("rope.scaling.factor"), "is " + number_text(rope.factor) + ", expected at least 1");
  return {};
}

Status read_rope(const GgufFile& file, const ArchKeys& keys, std::vector<float> rope_freqs, HfConfig& config) {
  HB_TRY(keys.number("rope.freq_base", 1.0, 1e12, config.rope.theta));
  int64_t rotated = config.head_dim;
  HB_TRY(keys.optional("rope.dimension_count", 1, kMaxHeadDim, rotated));
  if (rotated != config.head_dim) {
    return unsupported(
        file.error(keys.key("rope.dimension_count"), "is " + std::to_string(rotated) +
                                                         ", which is not supported; expected the head size " +
                                                         std::to_string(config.head_dim))
            .message());
  }
  HB_TRY(read_scaling(file, keys, config));
  if (rope_freqs.empty()) return {};
  if (rope_freqs.size() != static_cast<uint64_t>(config.head_dim) / 2) {
    return invalid_data(file.name() + ": tensor 'rope_freqs.weight' has " + std::to_string(rope_freqs.size()) +
                        " elements, expected half of the head size " + std::to_string(config.head_dim));
  }
  for (size_t i = 0; i < rope_freqs.size(); ++i) {
    if (!(rope_freqs[i] >= 1e-6f && rope_freqs[i] <= 1e6f)) {
      return invalid_data(file.name() + ": tensor 'rope_freqs.weight' has the value " + number_text(rope_freqs[i]) +
                          " at index " + std::to_string(i) + ", expected a factor from 1e-6 to 1e6");
    }
  }
  if (config.rope.kind != RopeKind::kDefault) {
    return unsupported(file.name() + ": has both a rope_freqs tensor and rope scaling " +
                       quote(name_of(config.rope.kind)) + ", which is not supported");
  }
  config.rope.frequency_factors = std::move(rope_freqs);
  name_llama3_rule(config);
  return {};
}

Status read_vocab_size(const GgufFile& file, const ArchKeys& keys, int64_t& out) {
  if (const GgufTensor* embedding = find_tensor(file, "token_embd.weight");
      embedding != nullptr && embedding->shape.rank() == 2) {
    out = embedding->shape[0];
    if (out > kMaxVocab)
      return invalid_data(file.name() + ": tensor 'token_embd.weight' has " + std::to_string(out) +
                          " rows, expected at most " + std::to_string(kMaxVocab));
    return {};
  }
  HB_ASSIGN(const auto tokens, file.strings("tokenizer.ggml.tokens"));
  out = static_cast<int64_t>(tokens.size());
  return out > 0 ? Status() : keys.require("vocab_size", 1, kMaxVocab, out);
}

// Some converters write -1 or 2^32 - 1 for "none".
Result<std::optional<int64_t>> read_token_id(const GgufFile& file, const char* key) {
  HB_ASSIGN(const auto id, file.integer(key, -1, UINT32_MAX));
  return id && *id != -1 && *id != UINT32_MAX ? id : std::optional<int64_t>();
}

// Config is HfConfig or GenerationConfig. Ids are compared with the vocabulary by check_config.
template <class Config>
Status read_special_tokens(const GgufFile& file, Config& config) {
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    HB_ASSIGN(const auto id, read_token_id(file, key));
    auto& ids = config.eos_token_ids;
    if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  }
  HB_ASSIGN(config.bos_token_id, read_token_id(file, "tokenizer.ggml.bos_token_id"));
  HB_ASSIGN(config.pad_token_id, read_token_id(file, "tokenizer.ggml.padding_token_id"));
  return {};
}

Status read_sampling(const GgufFile& file, const char* name, double min, double max, std::optional<double>& out) {
  const std::string key = std::string("general.sampling.") + name;
  HB_ASSIGN(const auto value, file.number(key));
  if (value && (*value < min || *value > max)) {
    return file.error(key, "is " + number_text(*value) + ", expected " + number_text(min) + " to " + number_text(max));
  }
  if (value) out = decimal_of(*value);
  return {};
}

}  // namespace

Result<HfConfig> gguf_config(const GgufFile& file, std::vector<float> rope_freqs) {
  HfConfig config;
  config.file = file.name();
  HB_ASSIGN(const auto arch, file.string("general.architecture"));
  if (!arch) return invalid_data(file.name() + ": has no metadata key 'general.architecture'; is it a model?");
  const Architecture* known = find_architecture(*arch);
  if (known == nullptr) return unsupported_architecture(file.name(), *arch);
  config.model_type = std::string(*arch);
  config.architectures.emplace_back(known->class_name);
  const ArchKeys keys(file, config.model_type);

  HB_TRY(keys.require("embedding_length", 1, kMaxWidth, config.hidden_size));
  HB_TRY(keys.require("feed_forward_length", 1, kMaxWidth, config.intermediate_size));
  HB_TRY(keys.require("block_count", 1, kMaxLayers, config.num_layers));
  HB_TRY(keys.require("context_length", 1, kMaxPositions, config.max_position_embeddings));
  HB_TRY(read_heads(file, keys.key("attention.head_count"), config.num_heads));
  if (config.num_heads == 0)
    return invalid_data(file.name() + ": has no metadata key " + quote(keys.key("attention.head_count")) +
                        "; convert the model again");
  config.num_kv_heads = config.num_heads;
  HB_TRY(read_heads(file, keys.key("attention.head_count_kv"), config.num_kv_heads));
  HB_TRY(keys.optional("attention.key_length", 1, kMaxHeadDim, config.head_dim));
  HB_TRY(keys.number("attention.layer_norm_rms_epsilon", 1e-12, 0.1, config.rms_norm_eps));
  HB_TRY(read_vocab_size(file, keys, config.vocab_size));
  HB_TRY(read_special_tokens(file, config));
  config.attention_bias = config.model_type != "qwen2" && find_tensor(file, "blk.0.attn_q.bias") != nullptr;
  config.mlp_bias = find_tensor(file, "blk.0.ffn_gate.bias") != nullptr;
  config.tie_word_embeddings = find_tensor(file, "output.weight") == nullptr;
  int64_t experts = 0;
  HB_TRY(keys.optional("expert_count", 0, INT32_MAX, experts));
  if (experts > 0) {
    return unsupported(file.name() + ": is a mixture of " + std::to_string(experts) +
                       " experts, which is not supported; use a dense model");
  }
  HB_TRY(check_config(config));
  int64_t value_length = config.head_dim;
  HB_TRY(keys.optional("attention.value_length", 1, kMaxHeadDim, value_length));
  if (value_length != config.head_dim) {
    return unsupported(
        file.error(keys.key("attention.value_length"), "is " + std::to_string(value_length) +
                                                           ", which is not supported; expected the head size " +
                                                           std::to_string(config.head_dim))
            .message());
  }
  HB_TRY(read_rope(file, keys, std::move(rope_freqs), config));
  HB_TRY(check_config(config));
  return config;
}

Result<GenerationConfig> gguf_generation_config(const GgufFile& file) {
  GenerationConfig config;
  HB_TRY(read_special_tokens(file, config));
  HB_TRY(read_sampling(file, "temp", 0.0, 100.0, config.temperature));
  HB_TRY(read_sampling(file, "top_p", 0.0, 1.0, config.top_p));
  HB_TRY(read_sampling(file, "min_p", 0.0, 1.0, config.min_p));
  HB_TRY(read_sampling(file, "penalty_repeat", 1e-3, 100.0, config.repetition_penalty));
  HB_ASSIGN(config.top_k, file.integer("general.sampling.top_k", -1, INT32_MAX));
  return config;
}

}  // namespace halfbyte
