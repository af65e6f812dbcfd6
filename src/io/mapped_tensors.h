// The TensorSource of files: tensors at checked places in mappings. Inside io only.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "io/tensor_source.h"

namespace halfbyte {

struct MappedTensor {
  TensorInfo info;
  uint32_t file = 0;   // index into the files
  uint64_t begin = 0;  // byte in that file; begin + info.bytes lies in the file
  // > 0: the rows of each of this many heads are stored interleaved, as GGUF keeps the q and k of the llama
  // architecture: row (head, half, j) of the Hugging Face form is stored as row (head, j, half), half in {0, 1}.
  int64_t interleaved_heads = 0;
  float scale = 1.0f;  // every stored value times this: GGUF's ".scale" beside an NVFP4 weight
};

class MappedTensors final : public TensorSource {
 public:
  // Tensors must be range-checked and have distinct names.
  MappedTensors(std::string description, std::string path, std::vector<std::shared_ptr<const MappedFile>> files,
                std::vector<MappedTensor> tensors);

  std::string describe() const override { return description_; }
  const std::string& path() const override { return path_; }
  std::span<const TensorInfo> tensors() const override { return infos_; }
  const TensorInfo* find(std::string_view name) const override;
  Result<std::span<const std::byte>> bytes(const TensorInfo& tensor) const override;
  Result<std::span<const std::byte>> row_bytes(const TensorInfo& tensor, int64_t row) const override;
  float multiplier(const TensorInfo& tensor) const override { return place(tensor).scale; }
  std::shared_ptr<const void> owner(const TensorInfo& tensor) const override;
  Status read_rows(const TensorInfo& tensor, int64_t first, int64_t rows, std::span<float> out) const override;
  std::string label(const TensorInfo& tensor) const override;

 private:
  struct Place {
    uint32_t file;
    uint64_t begin;
    int64_t interleaved_heads;
    float scale;
  };
  const Place& place(const TensorInfo& tensor) const;

  std::string description_;
  std::string path_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<TensorInfo> infos_;  // by name
  std::vector<Place> places_;      // parallel to infos_
};

}  // namespace halfbyte
