// The GGUF container, versions 2 and 3: typed metadata and a table of tensors, over mapped bytes.
//
// The parser trusts nothing: every length and count is bounded by the bytes that are left before anything is allocated,
// sizes are computed with checked arithmetic, every tensor lies inside the file, none overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/hf_config.h"
#include "io/tensor_source.h"
#include "io/tokenizer_source.h"

namespace halfbyte {

enum class GgufType : uint32_t { kU8 = 0, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

// A metadata value, still as bytes of the file. An array holds `count` elements of type `type`.
struct GgufValue {
  GgufType type = GgufType::kU8;
  bool array = false;
  uint64_t count = 1;
  std::span<const std::byte> bytes;  // scalars and numbers: the bytes; a string: its text; strings: length + text each
};

struct GgufTensor {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;         // outermost first (the file stores it the other way round)
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t bytes = 0;
};

// Thread-safe after parsing; refers to the mapped bytes.
class GgufFile {
 public:
  // `name` is what messages call the file.
  static Result<GgufFile> parse(std::span<const std::byte> file, const std::string& name);

  const std::string& name() const { return name_; }
  uint32_t version() const { return version_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }  // in file order

  bool has(std::string_view key) const { return metadata_.find(key) != metadata_.end(); }
  // Typed reads. Nothing when the key is absent; kInvalidData for another type or out of range.
  Result<std::optional<int64_t>> integer(std::string_view key, int64_t min, int64_t max) const;
  Result<std::optional<double>> number(std::string_view key) const;  // finite
  Result<std::optional<bool>> boolean(std::string_view key) const;
  Result<std::optional<std::string_view>> string(std::string_view key) const;
  Result<std::vector<std::string_view>> strings(std::string_view key) const;  // empty when absent
  Result<std::vector<int64_t>> integers(std::string_view key) const;          // a scalar is an array of one
  Result<std::vector<float>> floats(std::string_view key) const;              // F32; may be NaN or infinite

  Status error(std::string_view key, const std::string& text) const;  // "model.gguf: metadata key 'x': <text>"

 private:
  friend class GgufParser;
  const GgufValue* find(std::string_view key) const;

  std::string name_;
  uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

// The configuration that the metadata stands for; rope_freqs (may be empty) are the values of the tensor of that name.
Result<HfConfig> gguf_config(const GgufFile& file, std::vector<float> rope_freqs);
// general.sampling.* and the end-of-text tokens.
Result<GenerationConfig> gguf_generation_config(const GgufFile& file);
// tokenizer.ggml.*; kUnsupported for anything but BPE ("gpt2", "llama"), kNotFound without a vocabulary.
Result<GgufVocab> gguf_vocab(const GgufFile& file);
// Chat templates and the texts of special tokens.
Result<TokenizerSource> gguf_tokenizer_source(const GgufFile& file);

// A GGUF file as a source with Hugging Face names, row order and configuration.
struct GgufModel {
  std::shared_ptr<const TensorSource> tensors;
  HfConfig config;
  GenerationConfig generation;
};
Result<GgufModel> open_gguf(const std::string& path);

}  // namespace halfbyte
