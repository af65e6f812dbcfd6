#include "fuzz_support.h"
#include "io/hf_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfbyte;
  const auto config = parse_generation_config(fuzzing::text_of(data, size), "generation_config.json");
  fuzzing::check_message(config.status());
  if (!config.ok()) return 0;
  if (config->temperature) fuzzing::require(*config->temperature >= 0 && *config->temperature <= 100);
  if (config->top_p) fuzzing::require(*config->top_p >= 0 && *config->top_p <= 1);
  for (const int64_t id : config->eos_token_ids) fuzzing::require(id >= 0);
  return 0;
}
