#include "io/tensor_source.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "io/dequantize.h"
#include "io/gguf.h"
#include "io/locate.h"
#include "io/message.h"
#include "io/read_file.h"
#include "io/safetensors.h"

namespace halfbyte {
namespace {

Status no_weights(const std::string& folder) {
  const std::vector<std::string> entries = folder_entries(folder);
  std::string hint = "name the folder of a downloaded model or a .gguf file";
  const auto has_suffix = [&](std::string_view suffix) {
    return std::any_of(entries.begin(), entries.end(), [&](const auto& e) { return e.ends_with(suffix); });
  };
  if (has_suffix(".bin") || has_suffix(".pth") || has_suffix(".pt")) {
    hint = "PyTorch pickles are not read: save the model as safetensors (model.save_pretrained(...))";
  } else if (has_suffix(".safetensors")) {
    hint = "the safetensors files there have other names: name one of them, or add the index";
  }
  return not_found(
      shown(folder) +
      ": holds no model: looked for model.safetensors, model.safetensors.index.json and one .gguf file; there: " +
      (entries.empty() ? "nothing" : listed(entries)) + "; " + hint);
}

Result<std::shared_ptr<const TensorSource>> open_indexed(const std::string& path, const std::string& index_path) {
  HB_ASSIGN(const auto text, read_small_file(index_path));
  if (!text) return not_found(shown(index_path) + ": no such file");
  HB_ASSIGN(const SafetensorsIndex index, parse_safetensors_index(*text, shown(index_path)));
  const std::string folder = index_path.substr(0, index_path.size() - base_name(index_path).size());
  const std::vector<std::string> entries = folder_entries(folder.empty() ? "." : folder);
  std::vector<std::string> files, missing;
  for (const std::string& name : index.files) {
    files.push_back(folder + name);
    if (!std::binary_search(entries.begin(), entries.end(), name)) missing.push_back(name);
  }
  if (!missing.empty()) {
    return not_found(shown(path) + ": " + std::to_string(missing.size()) + " of the " +
                     std::to_string(index.files.size()) + " files that " + shown(base_name(index_path)) +
                     " names are missing: " + listed(missing) + "; download the rest of the model");
  }
  return open_safetensors(path, files, &index);
}

}  // namespace

Status TensorSource::check_readable(const TensorInfo& tensor) const {
  if (can_dequantize(tensor.dtype)) return {};
  return unsupported(error(tensor, "has element type " + std::string(dtype_info(tensor.dtype).name) +
                                       ", expected F32, F16, BF16, F8_E4M3 or a GGUF block type; save the model in one "
                                       "of these")
                         .message());
}

Result<std::span<const std::byte>> TensorSource::row_bytes(const TensorInfo& tensor, int64_t row) const {
  HB_ASSIGN(const auto all, bytes(tensor));
  if (tensor.shape.rank() != 2 || row < 0 || row >= tensor.shape[0])
    return internal_error(error(tensor, "row out of range").message());
  const uint64_t row_size = tensor.bytes / static_cast<uint64_t>(tensor.shape[0]);
  return all.subspan(static_cast<uint64_t>(row) * row_size, row_size);
}

std::optional<float> largest_of_rows(const TensorSource& source, const TensorInfo& tensor, int64_t first,
                                     int64_t rows) {
  float largest = 0.0f;
  for (int64_t r = first; r < first + rows; ++r) {
    const Result<std::span<const std::byte>> bytes = source.row_bytes(tensor, r);
    if (!bytes.ok()) return std::nullopt;
    const std::optional<float> row = largest_of_row(tensor.dtype, *bytes);
    if (!row || !std::isfinite(*row)) return row;
    largest = std::max(largest, *row);
  }
  return largest * std::fabs(source.multiplier(tensor));
}

Result<std::shared_ptr<const TensorSource>> open_tensor_source(const std::string& path) {
  HB_ASSIGN(const Location location, locate(path));
  switch (location.kind) {
    case Location::Kind::kSafetensors: return open_safetensors(path, location.files, nullptr);
    case Location::Kind::kIndexedSafetensors: return open_indexed(path, location.files.front());
    case Location::Kind::kGguf: {
      HB_ASSIGN(GgufModel model, open_gguf(location.files.front()));
      return std::move(model.tensors);
    }
    case Location::Kind::kConfigOnly: break;
  }
  return no_weights(location.folder);
}

Result<std::vector<float>> read_all(const TensorSource& source, const TensorInfo& tensor) {
  const int64_t rows = tensor.shape.rank() == 2 ? tensor.shape[0] : 1;
  std::vector<float> out;
  try {
    out.resize(tensor.shape.elements().value_or(UINT64_MAX / 8));
  } catch (const std::exception&) {  // bad_alloc or length_error
    return resource_exhausted(source.label(tensor) + ": needs " + std::to_string(tensor.shape.elements().value_or(0)) +
                              " x 4 bytes of memory, more than there is");
  }
  HB_TRY(source.read_rows(tensor, 0, rows, out));
  return out;
}

}  // namespace halfbyte
