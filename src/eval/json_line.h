// A line of a JSON lines file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"

namespace halfbyte {

// "q.jsonl, line 7": what messages call the line.
std::string line_name(const std::string& file, int64_t line);

// Called so; broken JSON is "q.jsonl, line 7, column 54: expected ...". `text` holds no newline.
Result<std::unique_ptr<JsonDocument>> parse_json_line(std::string_view text, const std::string& file, int64_t line);

}  // namespace halfbyte
