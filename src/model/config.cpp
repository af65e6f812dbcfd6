#include "model/config.h"

#include "base/quote.h"
#include "io/architectures.h"

namespace halfbyte {
namespace {

std::vector<int32_t> stop_tokens(const HfConfig& facts, const GenerationConfig& generation) {
  const std::vector<int64_t>& ids = generation.eos_token_ids.empty() ? facts.eos_token_ids : generation.eos_token_ids;
  std::vector<int32_t> out;
  for (const int64_t id : ids)
    if (id >= 0 && id < facts.vocab_size) out.push_back(static_cast<int32_t>(id));
  return out;
}

}  // namespace

Result<ModelConfig> make_model_config(const HfConfig& facts, const GenerationConfig& generation) {
  const Architecture* architecture = find_architecture(facts.model_type);
  if (architecture == nullptr) {
    std::string known;
    for (const Architecture& a : kArchitectures) known += (known.empty() ? "" : ", ") + std::string(a.name);
    return unsupported(facts.file + ": architecture " + quote(facts.model_type) +
                       " is not supported, expected one of " + known);
  }

  ModelConfig c;
  c.architecture = facts.model_type;
  c.hidden = facts.hidden_size;
  c.intermediate = facts.intermediate_size;
  c.layers = facts.num_layers;
  c.heads = facts.num_heads;
  c.kv_heads = facts.num_kv_heads;
  c.head_dim = facts.head_dim;
  c.vocab = facts.vocab_size;
  c.context = facts.max_position_embeddings;
  c.rms_norm_eps = static_cast<float>(facts.rms_norm_eps);
  c.qkv_bias = has_qkv_bias(*architecture, facts.attention_bias);
  c.o_bias = has_o_bias(*architecture, facts.attention_bias);
  c.mlp_bias = facts.mlp_bias;
  c.qk_norm = architecture->qk_norm;
  c.tied_head = facts.tie_word_embeddings;
  c.rope = facts.rope;
  c.stop_tokens = stop_tokens(facts, generation);
  c.generation = generation;
  return c;
}

}  // namespace halfbyte
