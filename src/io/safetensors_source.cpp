#include <map>
#include <utility>

#include "io/mapped_tensors.h"
#include "io/mapping_guard.h"
#include "io/message.h"
#include "io/safetensors.h"

namespace halfbyte {
namespace {

// Every tensor that the index lists is in the file that it says.
Status check_index(const SafetensorsIndex& index, const std::string& path, const std::vector<std::string>& files,
                   const std::map<std::string, uint32_t, std::less<>>& file_of) {
  for (const auto& [tensor, file] : index.file_of) {
    const auto it = file_of.find(tensor);
    const auto fail = [&, &tensor_name = tensor, &file_name = file](const std::string& text) {
      return invalid_data(shown(path) + ": model.safetensors.index.json: weight_map says that tensor " +
                          quote(tensor_name) + " is in " + quote(file_name) + text);
    };
    if (it == file_of.end())
      return fail(", but no such tensor is there; the index and the shards are not of one model");
    if (const std::string found = base_name(files[it->second]); found != file)
      return fail(", but it is in " + quote(found));
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const TensorSource>> open_safetensors(const std::string& path,
                                                             const std::vector<std::string>& files,
                                                             const SafetensorsIndex* index) {
  std::vector<std::shared_ptr<const MappedFile>> mapped;
  std::vector<MappedTensor> tensors;
  std::map<std::string, uint32_t, std::less<>> file_of;
  for (const std::string& file_path : files) {
    HB_ASSIGN(auto file, open_guarded(file_path));
    const std::string name = shown(file_path);
    HB_ASSIGN(auto entries, parse_safetensors(file->bytes(), name));
    const auto number = static_cast<uint32_t>(mapped.size());
    for (SafetensorsEntry& entry : entries) {
      const auto [it, fresh] = file_of.emplace(entry.name, number);
      if (!fresh) {
        return invalid_data(name + ": tensor " + quote(entry.name) + " is also in " +
                            shown(base_name(files[it->second])) + "; expected each tensor in one file");
      }
      MappedTensor tensor;
      tensor.info = {entry.name, entry.name, entry.dtype, std::move(entry.shape), entry.bytes};
      tensor.file = number;
      tensor.begin = entry.begin;
      tensors.push_back(std::move(tensor));
    }
    mapped.push_back(std::move(file));
  }
  if (index != nullptr) HB_TRY(check_index(*index, path, files, file_of));
  const std::string count = std::to_string(files.size()) + " safetensors file" + (files.size() == 1 ? "" : "s");
  return std::shared_ptr<const TensorSource>(
      std::make_shared<MappedTensors>("Hugging Face folder, " + count, path, std::move(mapped), std::move(tensors)));
}

}  // namespace halfbyte
