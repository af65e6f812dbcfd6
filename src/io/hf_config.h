// What a model's config.json and generation_config.json say, as plain facts with ranges checked. The metadata of a GGUF
// file gives the same structs (io/gguf.h), so nothing above io knows which file it was.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

enum class RopeKind : uint8_t { kDefault, kLinear, kLlama3, kYarn };
const char* name_of(RopeKind kind);  // "default", "linear", "llama3", "yarn", as config.json spells them

// Rotary position embedding, from rope_theta + rope_scaling (transformers 4) or rope_parameters (transformers 5).
// Formulas: transformers' modeling_rope_utils; fields that a kind does not use keep their defaults.
struct RopeFacts {
  RopeKind kind = RopeKind::kDefault;
  double theta = 10000.0;
  double factor = 1.0;                           // linear, llama3, yarn
  int64_t original_max_position = 0;             // llama3, yarn; 0: max_position_embeddings
  double low_freq_factor = 1.0;                  // llama3
  double high_freq_factor = 4.0;                 // llama3
  double beta_fast = 32.0;                       // yarn
  double beta_slow = 1.0;                        // yarn
  bool truncate = true;                          // yarn: correction range rounded outwards to whole dimensions
  std::optional<double> attention_factor;        // yarn; none: 0.1 ln(factor) + 1, or from the two below
  std::optional<double> mscale, mscale_all_dim;  // yarn
  // A GGUF file's rope_freqs tensor, [head_dim / 2]: each inverse frequency is divided by its factor. Empty for other
  // sources. When the factors are those of a llama3 rule, kind and fields above say so as well and agree with them.
  std::vector<float> frequency_factors;

  bool operator==(const RopeFacts&) const = default;
};

struct HfConfig {
  std::string file;              // what messages call it: the path of config.json or of the .gguf file
  std::string model_type;        // "llama", "qwen2", "qwen3": a name in io/architectures.h
  std::string other_model_type;  // what config.json says instead, where the class it names is another's; "" if not
  std::vector<std::string> architectures;  // {"Qwen3ForCausalLM"}
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;  // divides num_heads
  int64_t head_dim = 0;      // explicit, or hidden_size / num_heads; even
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  std::string hidden_act = "silu";
  bool attention_bias = false;  // llama: q, k, v, o; qwen3: q, k, v, o; qwen2 always has q, k, v (never o)
  bool mlp_bias = false;
  bool tie_word_embeddings = false;
  RopeFacts rope;
  // Sliding-window attention is refused while it is in use on any layer, so these are only what the file said.
  std::optional<int64_t> sliding_window;
  bool use_sliding_window = false;
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::vector<int64_t> eos_token_ids;  // config.json gives an int or a list
  std::string dtype;                   // "bfloat16": torch_dtype (transformers 4) or dtype (5); "" if absent
};

// kUnsupported for an architecture or option outside what Halfbyte runs (names it, lists what is supported);
// kInvalidData for a missing, mistyped or out-of-range field. `file` is what messages call the document.
Result<HfConfig> parse_hf_config(std::string_view json, const std::string& file);
// folder/config.json.
Result<HfConfig> read_hf_config(const std::string& folder);

// Sampling defaults and stop tokens. Everything optional; ranges checked.
struct GenerationConfig {
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id, pad_token_id;
  std::optional<bool> do_sample;
  std::optional<double> temperature, top_p, min_p, repetition_penalty;  // top_p may be 0: only the most likely token
  std::optional<int64_t> top_k, max_new_tokens;
};
Result<GenerationConfig> parse_generation_config(std::string_view json, const std::string& file);
// folder/generation_config.json; an empty struct when there is no such file.
Result<GenerationConfig> read_generation_config(const std::string& folder);

}  // namespace halfbyte
