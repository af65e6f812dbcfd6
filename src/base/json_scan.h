// Two looks at raw JSON text that simdjson's DOM does not offer. Only after it refused a text; both are linear.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace halfbyte {

// Copies `text` to `out` with ".0" after every integer that 64 bits cannot hold, so that it reads as a double. False,
// and `out` unspecified, when there is none.
bool widen_big_integers(std::string_view text, std::string& out);

// What is wrong with a text and where: "line 3, column 14: expected ',' or '}', found 'x'". Falls back to `fallback`
// when this scan finds nothing wrong.
std::string describe_json_error(std::string_view text, size_t max_depth, const std::string& fallback);

}  // namespace halfbyte
