// Where a completion's answer stands, whatever it is graded as.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte {

inline constexpr std::string_view kWhiteSpace = " \t\n\r\f\v";  // Python's, of ASCII

// Without the white space around it.
std::string_view trim(std::string_view text);

// The lines of the trimmed text, each trimmed; "" is one empty line.
std::vector<std::string_view> lines_of(std::string_view text);

// Where the group that opens at `open` ends (its '}'); npos: never. A backslash hides the character behind it.
size_t group_end(std::string_view text, size_t open);

// What is behind the last "</think>"; none where the reasoning was opened and never closed.
std::optional<std::string_view> answer_part(std::string_view completion);

// What is inside the last \boxed{...} that is closed.
std::optional<std::string> last_boxed(std::string_view text);

}  // namespace halfbyte
