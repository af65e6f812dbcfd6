// The safetensors format: 8 bytes little-endian header length, a JSON header, then the tensors' bytes.
//
// Every rule of the format is checked, so that the entries can be trusted: header at most 100 MB and inside the file,
// starts with "{", no duplicate names; each tensor's bytes = its shape times its element size; the ranges start at 0,
// leave no gap, do not overlap and end with the file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/tensor_source.h"

namespace halfbyte {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t bytes = 0;
};

constexpr uint64_t kMaxSafetensorsHeader = 100'000'000;

// In name order. `name` is what messages call the file.
Result<std::vector<SafetensorsEntry>> parse_safetensors(std::span<const std::byte> file, const std::string& name);

// model.safetensors.index.json: which file holds which tensor. File names are plain names, never paths.
struct SafetensorsIndex {
  std::map<std::string, std::string, std::less<>> file_of;  // tensor -> file
  std::vector<std::string> files;                           // sorted, unique
};
Result<SafetensorsIndex> parse_safetensors_index(std::string_view json, const std::string& name);

// One or more safetensors files as a source. `index` may be null; otherwise each tensor it lists must be in the file
// that it says. A tensor in two files is an error.
Result<std::shared_ptr<const TensorSource>> open_safetensors(const std::string& path,
                                                             const std::vector<std::string>& files,
                                                             const SafetensorsIndex* index);

}  // namespace halfbyte
