// Putting untrusted text into a message: always one line, always valid UTF-8, never long.
#pragma once

#include <string>
#include <string_view>

namespace halfbyte {

// The text in single quotes. Control characters and broken UTF-8 become \n, \t or \xNN; what is longer than `max_bytes`
// is cut between characters and ends in "...".
std::string quote(std::string_view text, size_t max_bytes = 80);

}  // namespace halfbyte
