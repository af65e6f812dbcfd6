// Where a model's tensors come from, whatever the file: names as Hugging Face gives them, shapes outermost first.
//
// Everything is mapped read-only and range-checked before it is handed out; nothing is allocated because a file says
// so. A file that shrinks while it is mapped: see io/mapping_guard.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace halfbyte {

struct TensorInfo {
  std::string name;       // Hugging Face name, e.g. "model.layers.0.self_attn.q_proj.weight"
  std::string file_name;  // the name in the file, for messages ("blk.0.attn_q.weight" in GGUF)
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t bytes = 0;
};

// Thread-safe after opening.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  // "Hugging Face folder, 2 safetensors files" / "GGUF v3"
  virtual std::string describe() const = 0;
  virtual const std::string& path() const = 0;
  // Every tensor, in name order.
  virtual std::span<const TensorInfo> tensors() const = 0;
  // Null when there is none. The pointer is into tensors().
  virtual const TensorInfo* find(std::string_view name) const = 0;

  // In the calls below `tensor` is an element of this source's tensors().

  // The stored bytes, whole rows in the tensor's order; lives as long as the source. Not aligned to anything. Fails for
  // a tensor whose rows the source reorders (GGUF's permuted q and k): use read_rows.
  virtual Result<std::span<const std::byte>> bytes(const TensorInfo& tensor) const = 0;
  // The stored bytes of one row (of a tensor of rank 2), in Hugging Face's order of rows also where bytes() fails.
  virtual Result<std::span<const std::byte>> row_bytes(const TensorInfo& tensor, int64_t row) const;
  // What every stored value is multiplied by: 1 but for GGUF's NVFP4 tensors with a ".scale" beside them.
  virtual float multiplier(const TensorInfo&) const { return 1.0f; }
  // Keeps the mapping behind bytes() alive.
  virtual std::shared_ptr<const void> owner(const TensorInfo& tensor) const = 0;

  // Rows [first, first + rows) of a tensor of rank 0 or 1 (one row) or 2, as FP32, exactly dequantised: each value is
  // the one that the format defines, in FP32. out: rows * row length. F32, F16, BF16, F8_E4M3 and the GGUF block types;
  // others are kUnsupported.
  virtual Status read_rows(const TensorInfo& tensor, int64_t first, int64_t rows, std::span<float> out) const = 0;

  // kUnsupported when read_rows cannot read this type.
  Status check_readable(const TensorInfo& tensor) const;

  // What messages call it: "model.safetensors: tensor 'x'".
  virtual std::string label(const TensorInfo& tensor) const = 0;
  // kInvalidData, "model.safetensors: tensor 'x': <text>".
  Status error(const TensorInfo& tensor, const std::string& text) const {
    return invalid_data(label(tensor) + ": " + text);
  }
};

// The largest magnitude of rows [first, first + rows) of a tensor of rank 2, as WeightSource::largest wants it.
std::optional<float> largest_of_rows(const TensorSource& source, const TensorInfo& tensor, int64_t first, int64_t rows);

// `path` is a folder with model.safetensors or model.safetensors.index.json and its shards, a folder with one .gguf
// file, a .gguf file, or a .safetensors file. Anything else: kNotFound or kInvalidData that lists what was looked for
// and what is there. Most callers want open_model_source (io/model_source.h), which also reads the configuration.
Result<std::shared_ptr<const TensorSource>> open_tensor_source(const std::string& path);

// All rows of a tensor of rank 0 to 2; kResourceExhausted when the elements do not fit in memory.
Result<std::vector<float>> read_all(const TensorSource& source, const TensorInfo& tensor);

}  // namespace halfbyte
