// NFC, the canonical composed form (Unicode annex 15). The data are utf8proc's, so the Unicode version is the library's
// (14.0 on Debian 12).
#pragma once

#include <string>
#include <string_view>

namespace halfbyte {

// Appends the NFC form of valid UTF-8. Text that is normal already costs one look at each character; only the
// surroundings of the others are rewritten. O(n log n) for any text: utf8proc's own ordering of marks is quadratic.
void append_nfc(std::string_view text, std::string& out);

// Whether a look at each character alone shows that the text is in NFC. False may mean "perhaps".
bool is_surely_nfc(std::string_view text);

}  // namespace halfbyte
