#include "io/hf_config.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "base/json.h"
#include "io/architectures.h"
#include "io/config_checks.h"
#include "io/locate.h"
#include "io/message.h"
#include "io/read_file.h"

namespace halfbyte {
namespace {

constexpr int64_t kMaxTokenId = INT32_MAX;

// Reads a member into `out` if it is there and not null.
Status read_int(const JsonValue& object, std::string_view key, int64_t min, int64_t max, int64_t& out) {
  if (const auto value = object.find_set(key)) {
    HB_ASSIGN(out, value->as_int(min, max));
  }
  return {};
}

Status read_int(const JsonValue& object, std::string_view key, int64_t min, int64_t max, std::optional<int64_t>& out) {
  if (const auto value = object.find_set(key)) {
    HB_ASSIGN(out, value->as_int(min, max));
  }
  return {};
}

Status require_int(const JsonValue& object, std::string_view key, int64_t min, int64_t max, int64_t& out) {
  HB_ASSIGN(const JsonValue value, object.at(key));
  HB_ASSIGN(out, value.as_int(min, max));
  return {};
}

// A finite number in [min, max].
Result<double> number_in(const JsonValue& value, double min, double max) {
  if (const auto word = value.python_number())
    return value.error("is " + std::string(*word) + ", expected " + number_text(min) + " to " + number_text(max));
  HB_ASSIGN(const double number, value.as_double());
  if (!(number >= min && number <= max)) {  // false for NaN
    return value.error("is " + number_text(number) + ", expected " + number_text(min) + " to " + number_text(max));
  }
  return number;
}

template <class T>  // double or std::optional<double>
Status read_number(const JsonValue& object, std::string_view key, double min, double max, T& out) {
  if (const auto value = object.find_set(key)) {
    HB_ASSIGN(out, number_in(*value, min, max));
  }
  return {};
}

template <class T>  // bool or std::optional<bool>
Status read_bool(const JsonValue& object, std::string_view key, T& out) {
  if (const auto value = object.find_set(key)) {
    HB_ASSIGN(out, value->as_bool());
  }
  return {};
}

Status read_string(const JsonValue& object, std::string_view key, std::string& out) {
  if (const auto value = object.find_set(key)) {
    HB_ASSIGN(const std::string_view text, value->as_string());
    out = std::string(text);
  }
  return {};
}

// A token id; -1 is an old spelling of "none".
Status read_token_id(const JsonValue& object, std::string_view key, std::optional<int64_t>& out) {
  HB_TRY(read_int(object, key, -1, kMaxTokenId, out));
  if (out == -1) out.reset();
  return {};
}

// An id or a list of ids.
Status read_token_ids(const JsonValue& object, std::string_view key, std::vector<int64_t>& out) {
  const auto value = object.find_set(key);
  if (!value) return {};
  std::vector<JsonValue> items = {*value};
  if (value->is_array()) {
    HB_ASSIGN(items, value->elements());
  }
  if (items.size() > 1000)
    return value->error("lists " + std::to_string(items.size()) + " token ids, expected at most 1000");
  for (const JsonValue& item : items) {
    HB_ASSIGN(const int64_t id, item.as_int(-1, kMaxTokenId));
    if (id != -1) out.push_back(id);
  }
  return {};
}

// config.json of multimodal and draft models nests the language model or names another class; both are refused by name.
Status read_architecture(const JsonValue& root, HfConfig& config) {
  HB_TRY(read_string(root, "model_type", config.model_type));
  if (const auto list = root.find_set("architectures")) {
    HB_ASSIGN(const auto items, list->elements());
    for (const JsonValue& item : items) {
      HB_ASSIGN(const std::string_view name, item.as_string());
      config.architectures.emplace_back(name);
    }
  }
  if (config.model_type.empty() && config.architectures.empty()) {
    return root.error("has neither architectures nor model_type; is this the config.json of a language model?");
  }
  // The class decides; a base model without a class list is known by its model_type.
  for (const Architecture& known : kArchitectures) {
    const bool matches = config.architectures.empty() ? config.model_type == known.name
                                                      : config.architectures.front() == known.class_name;
    if (!matches) continue;
    if (config.architectures.empty()) config.architectures.emplace_back(known.class_name);
    if (config.model_type != known.name) config.other_model_type = std::exchange(config.model_type, known.name);
    return {};
  }
  return unsupported_architecture(config.file,
                                  config.architectures.empty() ? config.model_type : config.architectures.front());
}

Status read_rope_rule(const JsonValue& rope, std::string_view kind, RopeFacts& out) {
  const auto common = [&]() -> Status {
    HB_TRY(require_present(rope, "factor"));
    HB_TRY(read_number(rope, "factor", 1.0, 1e6, out.factor));
    return read_int(rope, "original_max_position_embeddings", 1, kMaxPositions, out.original_max_position);
  };
  if (kind == "default") return {};
  if (kind == "linear") {
    out.kind = RopeKind::kLinear;
    return common();
  }
  if (kind == "llama3") {
    out.kind = RopeKind::kLlama3;
    HB_TRY(common());
    for (const char* key : {"low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}) {
      HB_TRY(require_present(rope, key));
    }
    HB_TRY(read_number(rope, "low_freq_factor", 1e-3, 1e6, out.low_freq_factor));
    return read_number(rope, "high_freq_factor", 1e-3, 1e6, out.high_freq_factor);
  }
  if (kind == "yarn") {
    out.kind = RopeKind::kYarn;
    HB_TRY(common());
    HB_TRY(read_number(rope, "beta_fast", 1e-3, 1e6, out.beta_fast));
    HB_TRY(read_number(rope, "beta_slow", 1e-3, 1e6, out.beta_slow));
    HB_TRY(read_number(rope, "attention_factor", 1e-6, 1e6, out.attention_factor));
    HB_TRY(read_number(rope, "mscale", 0.0, 1e6, out.mscale));
    HB_TRY(read_number(rope, "mscale_all_dim", 0.0, 1e6, out.mscale_all_dim));
    return read_bool(rope, "truncate", out.truncate);
  }
  return unsupported(rope.error("has the rope type " + quote(kind) +
                                ", which is not supported; supported: default, linear, llama3, yarn")
                         .message());
}

std::string rope_numbers(const RopeFacts& rope) {
  return rope.kind == RopeKind::kDefault
             ? ""
             : " with factor " + number_text(rope.factor) + ", theta " + number_text(rope.theta);
}

// rope_scaling of transformers 4 or rope_parameters of transformers 5.
Status read_rope_section(const JsonValue& rope, RopeFacts& out, double& partial) {
  HB_ASSIGN(const auto members, rope.members());
  if (!members.empty() &&
      std::all_of(members.begin(), members.end(), [](const auto& m) { return m.second.is_object(); })) {
    return unsupported(
        rope.error("gives one rope rule per layer type, which is not supported; expected one rule for all layers")
            .message());
  }
  HB_TRY(read_number(rope, "rope_theta", 1.0, 1e12, out.theta));
  HB_TRY(read_number(rope, "partial_rotary_factor", 0.0, 1.0, partial));
  std::string kind = "default";
  HB_TRY(read_string(rope, "type", kind));
  HB_TRY(read_string(rope, "rope_type", kind));
  return read_rope_rule(rope, kind, out);
}

// transformers 4: rope_theta and rope_scaling {rope_type or type, ...};
// transformers 5: rope_parameters {rope_type, rope_theta, ...}. A file may have both as long as they agree: a rule that
// was added to a file of the newer form would be passed over, and nobody would see it.
Status read_rope(const JsonValue& root, RopeFacts& out) {
  HB_TRY(read_number(root, "rope_theta", 1.0, 1e12, out.theta));
  HB_TRY(read_int(root, "original_max_position_embeddings", 1, kMaxPositions, out.original_max_position));
  double partial = 1.0;
  HB_TRY(read_number(root, "partial_rotary_factor", 0.0, 1.0, partial));
  const auto newer = root.find_set("rope_parameters");
  auto older = root.find_set("rope_scaling");
  if (older && older->is_object()) {
    HB_ASSIGN(const auto members, older->members());
    if (members.empty()) older.reset();
  }
  RopeFacts scaling = out;
  if (older) HB_TRY(read_rope_section(*older, scaling, partial));
  const bool has_theta = root.find_set("rope_theta").has_value();
  const double theta = out.theta;
  if (newer) {
    HB_TRY(read_rope_section(*newer, out, partial));
    const std::string advice = ", expected the same in both: write what holds into rope_parameters alone";
    if (has_theta && out.theta != theta)
      return root.error("rope_theta is " + number_text(theta) + ", rope_parameters has " + number_text(out.theta) +
                        advice);
    if (older && !older->find_set("rope_theta")) scaling.theta = out.theta;
    if (older && !(scaling == out))
      return older->error("says " + std::string(name_of(scaling.kind)) + rope_numbers(scaling) +
                          ", rope_parameters says " + name_of(out.kind) + rope_numbers(out) + advice);
  } else {
    out = scaling;
  }
  if (partial != 1.0) {
    return unsupported(root.error("partial_rotary_factor is " + number_text(partial) +
                                  ", which is not supported; expected 1 (rope over the whole head)")
                           .message());
  }
  return {};
}

Status read_sliding_window(const JsonValue& root, HfConfig& config) {
  HB_TRY(read_int(root, "sliding_window", 0, kMaxPositions, config.sliding_window));
  HB_TRY(read_bool(root, "use_sliding_window", config.use_sliding_window));
  int64_t max_window_layers = config.num_layers;
  HB_TRY(read_int(root, "max_window_layers", 0, kMaxLayers, max_window_layers));
  bool used = config.use_sliding_window && config.sliding_window && max_window_layers < config.num_layers;
  if (const auto types = root.find_set("layer_types")) {
    HB_ASSIGN(const auto items, types->elements());
    if (items.size() != static_cast<uint64_t>(config.num_layers)) {
      return types->error("lists " + std::to_string(items.size()) + " layers, num_hidden_layers is " +
                          std::to_string(config.num_layers));
    }
    used = false;
    for (const JsonValue& item : items) {
      HB_ASSIGN(const std::string_view type, item.as_string());
      used = used || type != "full_attention";
    }
  }
  if (!used) return {};
  return unsupported(root.error("some layers use sliding-window or another attention, which is not supported; expected "
                                "full attention in every layer")
                         .message());
}

// Other ways to rotate that share the class names.
Status check_rope_form(const JsonValue& root) {
  for (const char* key : {"rope_interleaved", "use_mrope"}) {
    bool set = false;
    HB_TRY(read_bool(root, key, set));
    if (set)
      return unsupported(root.error(std::string(key) + " is true, which is not supported; expected false").message());
  }
  return {};
}

Status read_sizes(const JsonValue& root, HfConfig& config) {
  HB_TRY(require_int(root, "hidden_size", 1, kMaxWidth, config.hidden_size));
  HB_TRY(require_int(root, "intermediate_size", 1, kMaxWidth, config.intermediate_size));
  HB_TRY(require_int(root, "num_hidden_layers", 1, kMaxLayers, config.num_layers));
  HB_TRY(require_int(root, "num_attention_heads", 1, kMaxHeads, config.num_heads));
  config.num_kv_heads = config.num_heads;
  HB_TRY(read_int(root, "num_key_value_heads", 1, kMaxHeads, config.num_kv_heads));
  HB_TRY(read_int(root, "head_dim", 1, kMaxHeadDim, config.head_dim));
  HB_TRY(require_int(root, "vocab_size", 1, kMaxVocab, config.vocab_size));
  return require_int(root, "max_position_embeddings", 1, kMaxPositions, config.max_position_embeddings);
}

Result<HfConfig> parse_root(const JsonValue& root, const std::string& file) {
  HfConfig config;
  config.file = file;
  HB_TRY(read_architecture(root, config));
  HB_TRY(read_sizes(root, config));
  HB_TRY(read_number(root, "rms_norm_eps", 1e-12, 0.1, config.rms_norm_eps));
  HB_TRY(read_string(root, "hidden_act", config.hidden_act));
  HB_TRY(read_bool(root, "attention_bias", config.attention_bias));
  HB_TRY(read_bool(root, "mlp_bias", config.mlp_bias));
  HB_TRY(read_bool(root, "tie_word_embeddings", config.tie_word_embeddings));
  HB_TRY(read_rope(root, config.rope));
  HB_TRY(check_rope_form(root));
  HB_TRY(read_sliding_window(root, config));
  HB_TRY(read_token_id(root, "bos_token_id", config.bos_token_id));
  HB_TRY(read_token_id(root, "pad_token_id", config.pad_token_id));
  HB_TRY(read_token_ids(root, "eos_token_id", config.eos_token_ids));
  HB_TRY(read_string(root, "torch_dtype", config.dtype));
  HB_TRY(read_string(root, "dtype", config.dtype));
  HB_TRY(check_config(config));
  return config;
}

}  // namespace

const char* name_of(RopeKind kind) {
  switch (kind) {
    case RopeKind::kDefault: return "default";
    case RopeKind::kLinear: return "linear";
    case RopeKind::kLlama3: return "llama3";
    case RopeKind::kYarn: return "yarn";
  }
  return "?";
}

Result<HfConfig> parse_hf_config(std::string_view json, const std::string& file) {
  HB_ASSIGN(const auto document, parse_model_json(json, file));
  return parse_root(document->root(), file);
}

Result<HfConfig> read_hf_config(const std::string& folder) {
  const std::string path = join_path(folder, "config.json");
  HB_ASSIGN(const auto text, read_small_file(path));
  if (!text) {
    return not_found(shown(folder) +
                     ": has no config.json; expected the folder of a Hugging Face model (config.json, "
                     "model.safetensors, tokenizer.json); there: " +
                     listed(folder_entries(folder)));
  }
  return parse_hf_config(*text, shown(path));
}

Result<GenerationConfig> parse_generation_config(std::string_view json, const std::string& file) {
  HB_ASSIGN(const auto document, parse_model_json(json, file));
  const JsonValue root = document->root();
  HB_TRY(root.members().status());
  GenerationConfig config;
  HB_TRY(read_token_ids(root, "eos_token_id", config.eos_token_ids));
  HB_TRY(read_token_id(root, "bos_token_id", config.bos_token_id));
  HB_TRY(read_token_id(root, "pad_token_id", config.pad_token_id));
  HB_TRY(read_bool(root, "do_sample", config.do_sample));
  HB_TRY(read_number(root, "temperature", 0.0, 100.0, config.temperature));
  HB_TRY(read_number(root, "top_p", 0.0, 1.0, config.top_p));
  HB_TRY(read_number(root, "min_p", 0.0, 1.0, config.min_p));
  HB_TRY(read_number(root, "repetition_penalty", 1e-3, 100.0, config.repetition_penalty));
  HB_TRY(read_int(root, "top_k", -1, INT32_MAX, config.top_k));
  if (config.top_k == -1) config.top_k = 0;  // vLLM's spelling of "off"
  HB_TRY(read_int(root, "max_new_tokens", 1, kMaxPositions, config.max_new_tokens));
  return config;
}

Result<GenerationConfig> read_generation_config(const std::string& folder) {
  const std::string path = join_path(folder, "generation_config.json");
  HB_ASSIGN(const auto text, read_small_file(path));
  if (!text) return GenerationConfig{};
  return parse_generation_config(*text, shown(path));
}

}  // namespace halfbyte
