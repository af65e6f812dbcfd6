#include "fuzz_support.h"
#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace halfbyte;
  const auto index = parse_safetensors_index(fuzzing::text_of(data, size), "model.safetensors.index.json");
  fuzzing::check_message(index.status());
  if (!index.ok()) return 0;
  fuzzing::require(!index->files.empty() && index->files.size() <= index->file_of.size());
  for (const std::string& file : index->files) {
    fuzzing::require(file.find('/') == std::string::npos && file.find('\0') == std::string::npos &&
                     file.front() != '.');
  }
  return 0;
}
