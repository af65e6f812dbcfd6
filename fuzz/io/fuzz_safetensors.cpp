// A safetensors file: the header, every tensor's rows, and every module as a linear. Each input is used twice: as a
// whole file, and as a header and data split at the first zero byte, with the right length in front.
#include "fuzz_support.h"
#include "io/load_linear.h"
#include "io/safetensors.h"

namespace {

using namespace halfbyte;
using fuzzing::check_message;
using fuzzing::require;

void read_everything(const TensorSource& source, uint64_t file_bytes) {
  const QuantConfig quant;
  for (const TensorInfo& tensor : source.tensors()) {
    require(source.find(tensor.name) == &tensor);
    const auto bytes = source.bytes(tensor);
    require(bytes.ok() && bytes->size() == tensor.bytes && tensor.bytes <= file_bytes);
    if (tensor.shape.elements().value_or(0) <= 1 << 20) check_message(read_all(source, tensor).status());
    std::string_view module = tensor.name;
    const size_t dot = module.rfind('.');
    if (dot == std::string_view::npos) continue;
    std::vector<std::string> warnings;
    const auto linear = load_quant_linear(source, quant, module.substr(0, dot), &warnings);
    check_message(linear.status());
    if (!linear.ok()) continue;
    require(linear->codes.size() == static_cast<uint64_t>(linear->n * code_bytes_per_row(linear->format, linear->k)));
    require(linear->block_scales.size() ==
            static_cast<uint64_t>(linear->n * scale_bytes_per_row(linear->format, linear->k)));
    const std::byte nan{linear->format == WeightFormat::kNVFP4 ? uint8_t{0x7F} : uint8_t{0xFF}};
    for (const std::byte scale : linear->block_scales.bytes()) require(scale < nan);
    require(linear->tensor_scale > 0);
  }
}

void run(std::string_view bytes) {
  static fuzzing::MemoryFile file;
  const std::string path = file.path(bytes);
  const auto source = open_safetensors(path, {path}, nullptr);
  check_message(source.status());
  if (source.ok()) read_everything(**source, bytes.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzzing::text_of(data, size);
  run(bytes);
  const size_t split = bytes.find('\0');
  if (split == std::string_view::npos || split == 0) return 0;
  std::string file(8, '\0');
  for (size_t i = 0; i < 8; ++i) file[i] = static_cast<char>(split >> (8 * i) & 0xFF);
  file += bytes.substr(0, split);
  file += bytes.substr(split + 1);
  run(file);
  return 0;
}
