// Members of a question's line that hold text.
#pragma once

#include <string>
#include <string_view>

#include "base/json.h"
#include "base/result.h"

namespace halfbyte {

// The text of a member; refuses an empty one.
Status read_question_text(const JsonValue& root, std::string_view key, std::string& out);

}  // namespace halfbyte
