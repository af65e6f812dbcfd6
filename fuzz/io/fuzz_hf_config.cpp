#include "fuzz_support.h"
#include "io/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfbyte;
  const auto config = parse_hf_config(fuzzing::text_of(data, size), "config.json");
  fuzzing::check_message(config.status());
  if (!config.ok()) return 0;
  fuzzing::require(config->num_heads > 0 && config->num_kv_heads > 0 && config->num_heads % config->num_kv_heads == 0);
  fuzzing::require(config->head_dim > 0 && config->head_dim % 2 == 0 && config->vocab_size > 0);
  fuzzing::require(config->rope.theta >= 1 && config->rope.factor >= 1 && config->rope.original_max_position > 0);
  return 0;
}
