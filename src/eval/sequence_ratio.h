// Similarity of two texts as Python's difflib counts it.
#pragma once

#include <string_view>

namespace halfbyte {

// difflib.SequenceMatcher(None, a, b).ratio() over the characters of UTF-8 texts, to the last bit: twice the characters in
// matching blocks over the characters of both. As there, characters that make up more than 1% of a `b` of 200 or more start no
// match (autojunk). Two empty texts: 1. Broken UTF-8 counts as U+FFFD.
double sequence_ratio(std::string_view a, std::string_view b);

}  // namespace halfbyte
