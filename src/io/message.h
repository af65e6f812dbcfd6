// Pieces of error messages; untrusted text goes through quote() of base/quote.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/quote.h"

namespace halfbyte {

// A path or file name as part of a message: quote() without the quotes, so that it can be copied.
std::string shown(std::string_view path);

// "a, b and 7 more": at most `limit` items, each as shown().
std::string listed(const std::vector<std::string>& items, size_t limit = 12);

// The part after the last '/'.
std::string base_name(std::string_view path);

// folder + "/" + name.
std::string join_path(const std::string& folder, std::string_view name);

}  // namespace halfbyte
