#include "io/mapped_tensors.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "base/checked.h"
#include "io/dequantize.h"
#include "io/message.h"

namespace halfbyte {
namespace {

// Where the row of the Hugging Face form lies in an interleaved tensor of `rows` rows.
int64_t stored_row(int64_t row, int64_t rows, int64_t heads) {
  const int64_t head_dim = rows / heads;
  const int64_t head = row / head_dim;
  const int64_t half = row % head_dim / (head_dim / 2);
  const int64_t j = row % (head_dim / 2);
  return head * head_dim + 2 * j + half;
}

}  // namespace

MappedTensors::MappedTensors(std::string description, std::string path,
                             std::vector<std::shared_ptr<const MappedFile>> files, std::vector<MappedTensor> tensors)
    : description_(std::move(description)), path_(std::move(path)), files_(std::move(files)) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.info.name < b.info.name; });
  infos_.reserve(tensors.size());
  places_.reserve(tensors.size());
  for (MappedTensor& tensor : tensors) {
    places_.push_back({tensor.file, tensor.begin, tensor.interleaved_heads, tensor.scale});
    infos_.push_back(std::move(tensor.info));
  }
}

const TensorInfo* MappedTensors::find(std::string_view name) const {
  const auto it = std::lower_bound(infos_.begin(), infos_.end(), name,
                                   [](const TensorInfo& info, std::string_view n) { return info.name < n; });
  return it != infos_.end() && it->name == name ? &*it : nullptr;
}

const MappedTensors::Place& MappedTensors::place(const TensorInfo& tensor) const {
  const TensorInfo* own = find(tensor.name);
  assert(own != nullptr && "the tensor belongs to another source");
  return places_[static_cast<size_t>(own - infos_.data())];
}

Result<std::span<const std::byte>> MappedTensors::bytes(const TensorInfo& tensor) const {
  const Place& at = place(tensor);
  if (at.interleaved_heads > 0 || at.scale != 1.0f) {
    return internal_error(shown(files_[at.file]->path()) + ": tensor " + quote(tensor.file_name) +
                          ": its rows are stored in another order or with a scale; use read_rows");
  }
  return files_[at.file]->bytes().subspan(at.begin, tensor.bytes);
}

Result<std::span<const std::byte>> MappedTensors::row_bytes(const TensorInfo& tensor, int64_t row) const {
  if (tensor.shape.rank() != 2 || row < 0 || row >= tensor.shape[0])
    return internal_error(error(tensor, "row out of range").message());
  const Place& at = place(tensor);
  const uint64_t row_size = tensor.bytes / static_cast<uint64_t>(tensor.shape[0]);
  const int64_t stored = at.interleaved_heads > 0 ? stored_row(row, tensor.shape[0], at.interleaved_heads) : row;
  return files_[at.file]->bytes().subspan(at.begin + static_cast<uint64_t>(stored) * row_size, row_size);
}

std::shared_ptr<const void> MappedTensors::owner(const TensorInfo& tensor) const {
  return files_[place(tensor).file];
}

Status MappedTensors::read_rows(const TensorInfo& tensor, int64_t first, int64_t rows, std::span<float> out) const {
  const Place& at = place(tensor);
  const size_t rank = tensor.shape.rank();
  if (rank > 2)
    return unsupported(error(tensor, "has shape " + tensor.shape.text() + ", expected rank 1 or 2").message());
  HB_TRY(check_readable(tensor));
  const int64_t total_rows = rank == 2 ? tensor.shape[0] : 1;
  const int64_t length = rank == 0 ? 1 : tensor.shape[rank - 1];
  if (first < 0 || rows < 0 || rows > total_rows || first > total_rows - rows ||
      out.size() != static_cast<uint64_t>(rows) * static_cast<uint64_t>(length)) {
    return internal_error(error(tensor, "rows out of range").message());
  }
  const std::span<const std::byte> data = files_[at.file]->bytes().subspan(at.begin, tensor.bytes);
  const auto columns = static_cast<size_t>(length);
  if (at.interleaved_heads > 0 && rank == 1) {
    // A bias: its elements are the rows.
    std::vector<float> stored(columns);
    dequantize_row(tensor.dtype, data, stored);
    for (int64_t i = 0; i < length; ++i) out[i] = stored[stored_row(i, length, at.interleaved_heads)];
    return {};
  }
  if (length == 0) return {};
  const size_t row_bytes = *dtype_bytes(tensor.dtype, columns);
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t row = at.interleaved_heads > 0 ? stored_row(first + i, total_rows, at.interleaved_heads) : first + i;
    dequantize_row(tensor.dtype, data.subspan(static_cast<size_t>(row) * row_bytes, row_bytes),
                   out.subspan(static_cast<size_t>(i) * columns, columns));
  }
  if (at.scale != 1.0f)
    for (float& value : out) value *= at.scale;
  return {};
}

std::string MappedTensors::label(const TensorInfo& tensor) const {
  return shown(files_[place(tensor).file]->path()) + ": tensor " + quote(tensor.file_name);
}

}  // namespace halfbyte
