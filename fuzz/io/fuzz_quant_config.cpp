// The input is read as config.json, as hf_quant_config.json, and split at the first zero byte as both; the part after a
// second zero byte is a module's name and a pattern.
#include "fuzz_support.h"
#include "io/quant_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfbyte;
  const std::string_view bytes = fuzzing::text_of(data, size);
  const std::string_view first = bytes.substr(0, bytes.find('\0'));
  std::string_view rest = first.size() < bytes.size() ? bytes.substr(first.size() + 1) : std::string_view();
  const std::string_view second = rest.substr(0, rest.find('\0'));
  rest = second.size() < rest.size() ? rest.substr(second.size() + 1) : std::string_view();
  for (const auto& [config, hf] :
       {std::pair{first, std::string_view()}, {std::string_view(), first}, {first, second}}) {
    const auto quant = parse_quant_config(config, hf);
    fuzzing::check_message(quant.status());
    if (!quant.ok()) continue;
    for (const char* module : {"lm_head", "model.layers.0.mlp.up_proj"}) quant->for_module(module);
    quant->for_module(rest);
    for (const std::string& warning : quant->warnings) fuzzing::check_message(invalid_data(warning));
  }
  if (rest.size() < 2000) {
    fnmatch(rest, rest);
    fnmatch("model.layers.10.self_attn.q_proj", rest);
  }
  return 0;
}
