// Sizes as people write and read them: "4GiB", "32K", "1k".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace halfbyte {

// A whole number with an optional unit, spaces around both allowed, e.g. "4096", "1.5GiB", "32K", "1k".
//   k, m, g, t and kB, MB, GB, TB, kb, mb, gb, tb   powers of 1000
//   K, M, G, T and Ki, KiB, ... (any case)          powers of 1024
//   B                                               1
// So "1k" is 1000 and "1K" is 1024, as in vLLM. A fraction must come out whole. `what` names the value in messages.
// invalid_argument for anything else, for a negative number and for more than 2^63 - 1.
Result<int64_t> parse_size(std::string_view text, std::string_view what);

// "512 B", "93.8 MiB", "4.00 GiB": three digits, powers of 1024.
std::string format_bytes(uint64_t bytes);

}  // namespace halfbyte
