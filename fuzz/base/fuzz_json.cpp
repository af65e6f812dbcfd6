// Any bytes: JsonDocument either refuses with one line, or every value of the tree can be read and every path found.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/json.h"
#include "base/utf8.h"

namespace {

using halfbyte::JsonValue;

void require(bool ok) {
  if (!ok) std::abort();
}

void require_one_line(const std::string& message) {
  require(!message.empty() && message.size() < 4000 && !halfbyte::find_invalid_utf8(message));
  require(std::none_of(message.begin(), message.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }));
}

void walk(const JsonValue& value, size_t depth, size_t& budget) {
  require(depth <= 64);
  if (budget == 0) return;
  --budget;
  if (auto s = value.as_string(); s.ok()) require(!halfbyte::find_invalid_utf8(*s));
  auto whole = value.as_int(-1000, 1000);
  if (whole.ok()) {
    require(*whole >= -1000 && *whole <= 1000 && *value.as_double() == static_cast<double>(*whole));
  } else {
    require_one_line(whole.status().message());
  }
  (void)value.as_bool().ok();
  if (auto members = value.members(); members.ok()) {
    for (const auto& [key, child] : *members) {
      require(value.find(key).has_value());
      walk(child, depth + 1, budget);
    }
  }
  if (auto elements = value.elements(); elements.ok()) {
    for (const JsonValue& child : *elements) walk(child, depth + 1, budget);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto document = halfbyte::JsonDocument::parse({reinterpret_cast<const char*>(data), size}, "fuzz.json");
  if (!document.ok()) {
    require_one_line(document.status().message());
    return 0;
  }
  size_t budget = 300;  // values to visit: paths and find() are linear each
  walk((*document)->root(), 0, budget);
  return 0;
}
