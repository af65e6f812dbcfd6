// How every command prints JSON.
#pragma once

#include <string>

namespace halfbyte::tools {

// `Json` is nlohmann's json or ordered_json. With a newline behind it. UTF-8 as it is; bytes that are none become
// U+FFFD. indent -1: one line.
template <class Json>
std::string json_text(const Json& json, int indent = 2) {
  return json.dump(indent, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace) + "\n";
}

}  // namespace halfbyte::tools
