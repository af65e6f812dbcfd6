#include "io/locate.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "io/foreign_file.h"
#include "io/message.h"
#include "io/read_file.h"

namespace halfbyte {
namespace fs = std::filesystem;
namespace {

bool is_file(const std::string& path) {
  std::error_code failure;
  return fs::is_regular_file(path, failure);
}

std::string parent_of(const std::string& path) {
  const std::string parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// A name that is there but can hold no weights: a link to nothing (half a cache of the hub), a folder, a pipe.
Status check_name(const std::string& path) {
  std::error_code failure;
  const fs::file_status own = fs::symlink_status(path, failure);
  if (own.type() == fs::file_type::not_found || is_file(path)) return {};
  HB_TRY(refuse_dangling_link(path));
  return invalid_data(shown(path) + ": is not a regular file");
}

// "Qwen/Qwen3-0.6B": what people know a model by.
bool is_hub_name(const std::string& path) {
  const size_t slash = path.find('/');
  return slash != std::string::npos && slash > 0 && slash + 1 < path.size() &&
         path.find('/', slash + 1) == std::string::npos && path[0] != '.' && path[0] != '~' && !path.ends_with(".gguf");
}

Result<Location> locate_file(const std::string& path) {
  char bytes[64] = {};
  std::ifstream file(path, std::ios::binary);
  if (!file) return invalid_data(shown(path) + ": cannot be opened: " + std::strerror(errno));
  file.read(bytes, sizeof bytes);
  const std::string_view begin(bytes, static_cast<size_t>(file.gcount()));
  HB_TRY(refuse_foreign_file(path, begin));
  if (begin.starts_with("GGUF")) return Location{Location::Kind::kGguf, "", {path}};
  if (path.ends_with(".safetensors")) return Location{Location::Kind::kSafetensors, parent_of(path), {path}};
  if (path.ends_with(".safetensors.index.json"))
    return Location{Location::Kind::kIndexedSafetensors, parent_of(path), {path}};
  if (path.ends_with("/config.json") || path == "config.json") return locate(parent_of(path));
  return invalid_data(
      shown(path) + ": is no model file: " + (begin.empty() ? "is empty" : "starts with " + quote(begin.substr(0, 4))) +
      "; expected a Hugging Face folder, a .gguf file (starts with 'GGUF') or a .safetensors file");
}

}  // namespace

std::vector<std::string> folder_entries(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code failure;
  fs::directory_iterator it(folder, failure);
  for (; !failure && it != fs::directory_iterator() && names.size() < 10000; it.increment(failure)) {
    std::error_code ignored;
    names.push_back(it->path().filename().string() + (it->is_directory(ignored) ? "/" : ""));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<Location> locate(const std::string& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (status.type() == fs::file_type::not_found) {
    return not_found(shown(path) + ": no such file or folder; expected a Hugging Face folder or a .gguf file" +
                     (is_hub_name(path) ? " (a model of the Hugging Face hub must be downloaded first)" : ""));
  }
  if (failure) return invalid_data(shown(path) + ": cannot be read: " + failure.message());
  if (status.type() == fs::file_type::regular) return locate_file(path);
  if (status.type() != fs::file_type::directory) {
    return invalid_data(shown(path) +
                        ": is neither a file nor a folder; expected a Hugging Face folder or a .gguf file");
  }
  // transformers' order: the single file before the index.
  const std::string single = join_path(path, "model.safetensors"),
                    index = join_path(path, "model.safetensors.index.json");
  for (const std::string& name : {single, index}) HB_TRY(check_name(name));
  if (is_file(single)) return Location{Location::Kind::kSafetensors, path, {single}};
  if (is_file(index)) return Location{Location::Kind::kIndexedSafetensors, path, {index}};
  std::vector<std::string> ggufs;
  for (const std::string& name : folder_entries(path)) {
    if (name.ends_with(".gguf")) ggufs.push_back(name);
  }
  if (ggufs.size() > 1) {
    return invalid_argument(shown(path) + ": holds " + std::to_string(ggufs.size()) + " GGUF files (" + listed(ggufs) +
                            "); name one of them");
  }
  if (ggufs.size() == 1) return Location{Location::Kind::kGguf, path, {join_path(path, ggufs[0])}};
  return Location{Location::Kind::kConfigOnly, path, {}};
}

}  // namespace halfbyte
