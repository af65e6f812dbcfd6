// Version and build facts, as `halfbyte --version` prints them.
#pragma once

#include <string>

namespace halfbyte {

const char* version();         // "0.1.0"
const char* build_commit();    // short hash, "+dirty" when the tree was changed, "unknown" outside git
std::string build_compiler();  // "g++ 12.2.0"

}  // namespace halfbyte
