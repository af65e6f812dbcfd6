// Putting values into a message; untrusted text always as one line, as valid UTF-8, and never long.
#pragma once

#include <string>
#include <string_view>

namespace halfbyte {

// The text in single quotes. Control characters and broken UTF-8 become \n, \t or \xNN; what is longer than `max_bytes`
// is cut between characters and ends in "...".
std::string quote(std::string_view text, size_t max_bytes = 80);

// "1e-06", "0.5": the shortest text that reads back as the same number.
std::string number_text(double number);
std::string number_text(float number);
// The double with the fewest digits that reads back as this float: 0.1, not 0.10000000149011612. For JSON that says what
// a person gave; what was computed stays as it is.
double as_typed(float number);

}  // namespace halfbyte
