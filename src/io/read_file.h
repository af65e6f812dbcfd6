// Small text files of a model's folder.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace halfbyte {

// kInvalidData when the path is a link to nothing, as half a cache of the hub has: such a file is missing, not absent.
Status refuse_dangling_link(const std::string& path);

// The whole file; nothing when there is no such file. kInvalidData when it is a link to nothing, no regular file or
// above 64 MiB (no file that is read this way is near that: configurations, not weights or vocabularies).
Result<std::optional<std::string>> read_small_file(const std::string& path);

// JSON of a model's file. What is no JSON is kInvalidData that says where, and what to do.
Result<std::unique_ptr<JsonDocument>> parse_model_json(std::string_view json, const std::string& file);

}  // namespace halfbyte
