// Small text files of a model's folder.
#pragma once

#include <optional>
#include <string>

#include "base/result.h"

namespace halfbyte {

// The whole file; nothing when there is no such file. kInvalidData when it is no regular file or above 64 MiB (no file that
// is read this way is near that: configurations, not weights or vocabularies).
Result<std::optional<std::string>> read_small_file(const std::string& path);

}  // namespace halfbyte
