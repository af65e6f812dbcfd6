// Safetensors files of known tensors, written in any order.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "quantize/output_folder.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace halfbyte {

struct OutputTensor {
  std::string name;
  DType dtype = DType::kBF16;  // a plain type
  Shape shape;
  uint64_t bytes = 0;
};

// Tensors are put into shards in the order given, so that a layer stays together; inside a file they are ordered by
// element size and then name, so that every tensor is aligned to its elements.
class SafetensorsWriter {
 public:
  // One file model.safetensors, or model-00001-of-0000N.safetensors and an index when they exceed shard_bytes.
  static Result<std::unique_ptr<SafetensorsWriter>> create(OutputFolder& folder,
                                                           const std::vector<OutputTensor>& tensors,
                                                           uint64_t shard_bytes);

  // Part of a tensor: `bytes` at `offset` from its start.
  Status write(const std::string& tensor, uint64_t offset, std::span<const std::byte> bytes);
  // Every tensor must have been written in full. Writes the index.
  Status finish(OutputFolder& folder);

 private:
  struct Place {
    size_t file;
    uint64_t begin;
    uint64_t bytes;
    uint64_t written = 0;
  };
  std::vector<std::string> file_names_;
  std::vector<std::unique_ptr<OutputFile>> files_;
  std::map<std::string, Place, std::less<>> places_;
};

}  // namespace halfbyte
