// A GGUF file: container, configuration, vocabulary, and every tensor's rows under its Hugging Face name.
#include "io/gguf.h"

#include "fuzz_support.h"
#include "io/tensor_source.h"

namespace {

using namespace halfbyte;
using fuzzing::check_message;
using fuzzing::require;

void check_container(std::string_view bytes) {
  const auto file = GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), "m.gguf");
  check_message(file.status());
  if (!file.ok()) return;
  for (const GgufTensor& tensor : file->tensors()) {
    require(tensor.begin <= bytes.size() && tensor.bytes <= bytes.size() - tensor.begin);
  }
  for (const auto& [key, value] : file->metadata()) {
    check_message(file->integer(key, INT64_MIN, INT64_MAX).status());
    check_message(file->number(key).status());
    check_message(file->boolean(key).status());
    check_message(file->string(key).status());
    check_message(file->strings(key).status());
    check_message(file->integers(key).status());
  }
  const auto tokenizer = gguf_tokenizer_source(*file);
  check_message(tokenizer.status());
  if (!tokenizer.ok()) return;
  for (const TokenizerAddedToken& token : tokenizer->vocab->added) {
    require(token.id >= 0 && static_cast<size_t>(token.id) < tokenizer->vocab->tokens.size());
  }
}

void check_model(std::string_view bytes) {
  static fuzzing::MemoryFile memory;
  const auto model = open_gguf(memory.path(bytes));
  check_message(model.status());
  if (!model.ok()) return;
  require(model->config.num_kv_heads > 0 && model->config.num_heads % model->config.num_kv_heads == 0);
  require(model->config.head_dim > 0 && model->config.head_dim % 2 == 0);
  for (const TensorInfo& tensor : model->tensors->tensors()) {
    require(model->tensors->find(tensor.name) == &tensor);
    if (tensor.shape.elements().value_or(0) <= 1 << 20) check_message(read_all(*model->tensors, tensor).status());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes = fuzzing::text_of(data, size);
  check_container(bytes);
  check_model(bytes);
  return 0;
}
