// What a path is: which files hold the model. Inside io only.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace halfbyte {

struct Location {
  enum class Kind { kSafetensors, kIndexedSafetensors, kGguf, kConfigOnly };
  Kind kind = Kind::kConfigOnly;
  std::string folder;  // where config.json and tokenizer.json are looked for; "" for a .gguf file given by name
  std::vector<std::string> files;  // the weights; for kIndexedSafetensors the index
};

// kConfigOnly: a folder without weights (a tokenizer can still be read from it). kNotFound when the path does not exist
// or is a file of no known kind; kInvalidArgument when a folder holds several GGUF files.
Result<Location> locate(const std::string& path);

// Names of what lies in the folder, sorted, folders with a trailing '/'. Empty when it cannot be read.
std::vector<std::string> folder_entries(const std::string& folder);

}  // namespace halfbyte
