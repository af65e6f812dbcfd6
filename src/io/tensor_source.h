// Where a model's tensors come from, whatever the file: names as Hugging Face gives them, shapes outermost first.
//
// Everything is mapped read-only and range-checked before it is handed out; nothing is allocated because a file says so.
#pragma once

#include <cstddef>
#include <memory>
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
  // Null when there is none.
  virtual const TensorInfo* find(std::string_view name) const = 0;

  // The stored bytes, whole rows in the tensor's order; lives as long as the source. Fails for a tensor whose rows the
  // source reorders (GGUF's permuted q and k): use read_rows.
  virtual Result<std::span<const std::byte>> bytes(const TensorInfo& tensor) const = 0;
  // Keeps the mapping behind bytes() alive.
  virtual std::shared_ptr<const void> owner(const TensorInfo& tensor) const = 0;

  // Rows [first, first + rows) of a tensor of rank 1 (one row) or 2, as FP32, exactly dequantised. out: rows * row length.
  virtual Status read_rows(const TensorInfo& tensor, int64_t first, int64_t rows, std::span<float> out) const = 0;

  // Failures name the file and the tensor: "model.safetensors: tensor 'x': <text>".
  virtual Status error(const TensorInfo& tensor, const std::string& text) const = 0;
};

}  // namespace halfbyte
