// Small text files of a model's folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace halfbyte {

// The whole file; nothing when there is no such file. kInvalidData when it is no regular file or above 64 MiB (no file
// that is read this way is near that: configurations, not weights or vocabularies).
Result<std::optional<std::string>> read_small_file(const std::string& path);

// Python writes NaN, Infinity and -Infinity into JSON, and published configurations hold them. The text with each of
// these words outside strings replaced by null.
std::string without_python_numbers(std::string_view json);

}  // namespace halfbyte
