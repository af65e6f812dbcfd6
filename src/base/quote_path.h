// Putting a path into a message.
#pragma once

#include <string>
#include <string_view>

#include "base/quote.h"

namespace halfbyte {

// As quote() writes it, but whole: a part of a path helps nobody.
inline std::string quote_path(std::string_view path) {
  constexpr size_t kLongestPath = 4096;  // PATH_MAX of Linux
  return quote(path, kLongestPath);
}

}  // namespace halfbyte
