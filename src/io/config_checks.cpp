#include "io/config_checks.h"

#include <algorithm>

#include "io/architectures.h"
#include "io/message.h"

namespace halfbyte {

Status unsupported_architecture(const std::string& file, std::string_view architecture) {
  std::string names;
  for (const Architecture& known : kArchitectures) {
    names +=
        std::string(names.empty() ? "" : ", ") + std::string(known.class_name) + " (" + std::string(known.name) + ")";
  }
  return unsupported(file + ": the architecture " + quote(architecture) + " is not supported; supported: " + names);
}

Status require_present(const JsonValue& object, std::string_view key) {
  if (object.find_set(key)) return {};
  return object.error("has no " + std::string(key));
}

Status check_config(HfConfig& config) {
  const auto fail = [&](const std::string& text) { return invalid_data(config.file + ": " + text); };
  if (config.num_heads % config.num_kv_heads != 0) {
    return fail("num_attention_heads " + std::to_string(config.num_heads) + " is no multiple of num_key_value_heads " +
                std::to_string(config.num_kv_heads));
  }
  if (config.head_dim == 0) {
    if (config.hidden_size % config.num_heads != 0) {
      return fail("has no head_dim, and hidden_size " + std::to_string(config.hidden_size) +
                  " is no multiple of num_attention_heads " + std::to_string(config.num_heads));
    }
    config.head_dim = config.hidden_size / config.num_heads;
  }
  if (config.head_dim % 2 != 0 || config.head_dim > kMaxHeadDim) {
    return fail("head_dim is " + std::to_string(config.head_dim) + ", expected an even number up to " +
                std::to_string(kMaxHeadDim));
  }
  if (config.hidden_act == "swish") config.hidden_act = "silu";  // an older name of it
  if (config.hidden_act != "silu") {
    return unsupported(config.file + ": hidden_act is " + quote(config.hidden_act) +
                       ", which is not supported; supported: silu");
  }
  RopeFacts& rope = config.rope;
  if (rope.original_max_position == 0) rope.original_max_position = config.max_position_embeddings;
  if (rope.kind == RopeKind::kLlama3 && !(rope.high_freq_factor > rope.low_freq_factor)) {
    return fail("rope high_freq_factor " + number_text(rope.high_freq_factor) + " is not above low_freq_factor " +
                number_text(rope.low_freq_factor));
  }
  if (!rope.frequency_factors.empty() && rope.frequency_factors.size() != static_cast<uint64_t>(config.head_dim) / 2) {
    return fail("rope_freqs has " + std::to_string(rope.frequency_factors.size()) +
                " factors, expected head_dim / 2 = " + std::to_string(config.head_dim / 2));
  }
  std::vector<int64_t> ids = config.eos_token_ids;
  if (config.bos_token_id) ids.push_back(*config.bos_token_id);
  for (const int64_t id : ids) {
    if (id >= config.vocab_size) {
      return fail("the special token id " + std::to_string(id) + " is outside the vocabulary of " +
                  std::to_string(config.vocab_size));
    }
  }
  return {};
}

}  // namespace halfbyte
