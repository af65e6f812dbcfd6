// Files that have a model file's name but hold what a download leaves in its place.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace halfbyte {

// invalid_data that says what `begin` (a file's first bytes) is and what to do: a Git LFS pointer, a web page.
Status refuse_foreign_file(const std::string& path, std::string_view begin);

// The first bytes of a file, as refuse_foreign_file wants them.
inline std::string_view first_bytes(std::span<const std::byte> file) {
  return {reinterpret_cast<const char*>(file.data()), file.size() < 64 ? file.size() : 64};
}

}  // namespace halfbyte
