#include "quantize/export_config.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "halfbyte/version.h"

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;

Json producer() {
  return {{"name", "halfbyte"}, {"version", version()}};
}

// ModelOpt's section of config.json (0.31 and later). Weights only: there are no input scales without calibration.
Json quantization_section(const ExportedQuantization& quantization) {
  const Json weights = {{"dynamic", false}, {"num_bits", 4}, {"type", "float"}, {"group_size", 16}};
  return {{"config_groups", {{"group_0", {{"weights", weights}, {"targets", {"Linear"}}}}}},
          {"ignore", quantization.exclude},
          {"quant_algo", "W4A16_NVFP4"},
          {"kv_cache_scheme", nullptr},
          {"producer", producer()},
          {"quant_method", "modelopt"}};
}

Json token_ids(const std::vector<int64_t>& ids) {
  return ids.size() == 1 ? Json(ids.front()) : Json(ids);
}

Result<Json> rope_section(const HfConfig& config) {
  const RopeFacts& rope = config.rope;
  if (!rope.frequency_factors.empty() && rope.kind != RopeKind::kLlama3) {
    return unsupported(
        config.file +
        ": its rope_freqs tensor follows no rule that a config.json can state; export from the original model");
  }
  if (rope.kind == RopeKind::kDefault) return Json(nullptr);
  Json out = {{"rope_type", name_of(rope.kind)}, {"factor", rope.factor}};
  if (rope.kind != RopeKind::kLinear) out["original_max_position_embeddings"] = rope.original_max_position;
  if (rope.kind == RopeKind::kLlama3) {
    out["low_freq_factor"] = rope.low_freq_factor;
    out["high_freq_factor"] = rope.high_freq_factor;
  }
  if (rope.kind == RopeKind::kYarn) {
    out["beta_fast"] = rope.beta_fast;
    out["beta_slow"] = rope.beta_slow;
    if (rope.attention_factor) out["attention_factor"] = *rope.attention_factor;
    if (rope.mscale) out["mscale"] = *rope.mscale;
    if (rope.mscale_all_dim) out["mscale_all_dim"] = *rope.mscale_all_dim;
    if (!rope.truncate) out["truncate"] = false;
  }
  return out;
}

}  // namespace

Result<std::string> rewrite_config(std::string_view config_json, const ExportedQuantization& quantization) {
  Json config =
      Json::parse(without_python_numbers(config_json, PythonNumbers::kNull), nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return internal_error("config.json: is no object, but was read before");
  for (const char* key : {"quantization_config", "compression_config"}) config.erase(key);
  const bool new_spelling = config.contains("dtype");
  config[new_spelling ? "dtype" : "torch_dtype"] = "bfloat16";
  if (quantization.quantised) config["quantization_config"] = quantization_section(quantization);
  return config.dump(2) + "\n";
}

Result<std::string> make_config(const HfConfig& config, const ExportedQuantization& quantization) {
  Json out;
  out["architectures"] = config.architectures;
  if (config.model_type != "qwen2")
    out["attention_bias"] = config.attention_bias;  // Qwen2 always has q, k and v biases
  out["attention_dropout"] = 0.0;
  if (config.bos_token_id) out["bos_token_id"] = *config.bos_token_id;
  if (!config.eos_token_ids.empty()) out["eos_token_id"] = token_ids(config.eos_token_ids);
  if (config.pad_token_id) out["pad_token_id"] = *config.pad_token_id;
  out["head_dim"] = config.head_dim;
  out["hidden_act"] = config.hidden_act;
  out["hidden_size"] = config.hidden_size;
  out["initializer_range"] = 0.02;
  out["intermediate_size"] = config.intermediate_size;
  out["max_position_embeddings"] = config.max_position_embeddings;
  if (config.model_type == "llama") out["mlp_bias"] = config.mlp_bias;
  out["model_type"] = config.model_type;
  out["num_attention_heads"] = config.num_heads;
  out["num_hidden_layers"] = config.num_layers;
  out["num_key_value_heads"] = config.num_kv_heads;
  out["rms_norm_eps"] = config.rms_norm_eps;
  HB_ASSIGN(out["rope_scaling"], rope_section(config));
  out["rope_theta"] = config.rope.theta;
  out["tie_word_embeddings"] = config.tie_word_embeddings;
  out["torch_dtype"] = "bfloat16";
  out["use_cache"] = true;
  out["vocab_size"] = config.vocab_size;
  if (quantization.quantised) out["quantization_config"] = quantization_section(quantization);
  return out.dump(2) + "\n";
}

std::string make_hf_quant_config(const ExportedQuantization& quantization) {
  const Json out = {{"producer", producer()},
                    {"quantization",
                     {{"quant_algo", "W4A16_NVFP4"},
                      {"kv_cache_quant_algo", nullptr},
                      {"group_size", 16},
                      {"exclude_modules", quantization.exclude}}}};
  return out.dump(4) + "\n";
}

std::string make_generation_config(const GenerationConfig& generation) {
  Json out = Json::object();
  if (generation.bos_token_id) out["bos_token_id"] = *generation.bos_token_id;
  if (!generation.eos_token_ids.empty()) out["eos_token_id"] = token_ids(generation.eos_token_ids);
  if (generation.pad_token_id) out["pad_token_id"] = *generation.pad_token_id;
  if (generation.do_sample) out["do_sample"] = *generation.do_sample;
  if (generation.temperature) out["temperature"] = *generation.temperature;
  if (generation.top_p) out["top_p"] = *generation.top_p;
  if (generation.top_k) out["top_k"] = *generation.top_k;
  if (generation.min_p) out["min_p"] = *generation.min_p;
  if (generation.repetition_penalty) out["repetition_penalty"] = *generation.repetition_penalty;
  if (generation.max_new_tokens) out["max_new_tokens"] = *generation.max_new_tokens;
  return out.dump(2) + "\n";
}

}  // namespace halfbyte
