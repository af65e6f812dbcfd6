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

std::vector<std::string> config_notes(const HfConfig& facts, const GenerationConfig& generation,
                                      std::string_view from) {
  const std::string file(from);
  std::vector<std::string> notes;
  if (!facts.other_model_type.empty())
    notes.push_back(facts.file + ": model_type is " + quote(facts.other_model_type) + ", and architectures names " +
                    quote(facts.architectures.front()) + "; read as " + facts.model_type);
  for (const int64_t id : generation.eos_token_ids) {
    if (id >= facts.vocab_size)
      notes.push_back(file + ": the end-of-text id " + std::to_string(id) + " is outside the vocabulary of " +
                      std::to_string(facts.vocab_size) + "; no text ends with it");
  }
  if (generation.top_p == 0.0)
    notes.push_back(file + ": top_p is 0, which keeps the most likely token alone; answers are greedy");
  return notes;
}

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
