#include "quantize/safetensors_writer.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/quote.h"
#include "quantize/exported_names.h"

namespace halfbyte {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::vector<OutputTensor>> split_into_shards(const std::vector<OutputTensor>& tensors,
                                                         uint64_t shard_bytes) {
  std::vector<std::vector<OutputTensor>> shards(1);
  uint64_t filled = 0;
  for (const OutputTensor& tensor : tensors) {
    if (filled > 0 && filled + tensor.bytes > shard_bytes) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(tensor);
    filled += tensor.bytes;
  }
  for (auto& shard : shards) {
    std::sort(shard.begin(), shard.end(), [](const OutputTensor& a, const OutputTensor& b) {
      const uint32_t size_a = dtype_info(a.dtype).block_bytes, size_b = dtype_info(b.dtype).block_bytes;
      return size_a != size_b ? size_a > size_b : a.name < b.name;
    });
  }
  return shards;
}

std::string file_name(size_t number, size_t count) {
  if (count == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", number + 1, count);
  return name;
}

// Length and JSON, padded with spaces so that the data begins at a multiple of 64 bytes.
std::string header_of(const std::vector<OutputTensor>& tensors) {
  // Written piece by piece: an ordered_json object is searched from its start at every insertion.
  std::string json(kOwnHeader);
  uint64_t offset = 0;
  for (const OutputTensor& tensor : tensors) {
    const Json entry = {{"dtype", dtype_info(tensor.dtype).name},
                        {"shape", tensor.shape.dims},
                        {"data_offsets", {offset, offset + tensor.bytes}}};
    json += "," + Json(tensor.name).dump() + ":" + entry.dump();
    offset += tensor.bytes;
  }
  json += "}";
  json.append((64 - (8 + json.size()) % 64) % 64, ' ');
  std::string out(8, '\0');
  for (size_t i = 0; i < 8; ++i) out[i] = static_cast<char>(json.size() >> (8 * i) & 0xFF);
  return out + json;
}

}  // namespace

Result<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::create(OutputFolder& folder,
                                                                     const std::vector<OutputTensor>& tensors,
                                                                     uint64_t shard_bytes) {
  auto writer = std::make_unique<SafetensorsWriter>();
  const auto shards = split_into_shards(tensors, shard_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    writer->file_names_.push_back(file_name(i, shards.size()));
    HB_ASSIGN(auto file, folder.create_file(writer->file_names_.back()));
    const std::string header = header_of(shards[i]);
    HB_TRY(file->write_at(0, std::as_bytes(std::span(header.data(), header.size()))));
    uint64_t begin = header.size();
    for (const OutputTensor& tensor : shards[i]) {
      writer->places_.emplace(tensor.name, Place{i, begin, tensor.bytes});
      begin += tensor.bytes;
    }
    writer->files_.push_back(std::move(file));
  }
  return writer;
}

Status SafetensorsWriter::write(const std::string& tensor, uint64_t offset, std::span<const std::byte> bytes) {
  const auto it = places_.find(tensor);
  if (it == places_.end() || offset + bytes.size() > it->second.bytes) {
    return internal_error("the tensor " + quote(tensor) + " has no such bytes in the files being written");
  }
  it->second.written += bytes.size();
  return files_[it->second.file]->write_at(it->second.begin + offset, bytes);
}

Status SafetensorsWriter::finish(OutputFolder& folder) {
  nlohmann::json weight_map = nlohmann::json::object();  // sorted by name
  uint64_t total = 0;
  for (const auto& [name, place] : places_) {
    if (place.written != place.bytes) return internal_error("the tensor " + quote(name) + " was not written in full");
    weight_map[name] = file_names_[place.file];
    total += place.bytes;
  }
  for (const auto& file : files_) HB_TRY(file->close());
  if (files_.size() == 1) return {};
  const nlohmann::json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(weight_map)}};
  return folder.write_text("model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace halfbyte
