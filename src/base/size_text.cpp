#include "base/size_text.h"

#include <cstdio>
#include <limits>
#include <optional>

#include "base/quote.h"

namespace halfbyte {
namespace {

using Wide = unsigned __int128;

std::string_view trimmed(std::string_view s) {
  const size_t first = s.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return s.substr(first, s.find_last_not_of(" \t") - first + 1);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// 1000 or 1024 to the power of the unit; nothing for an unknown unit.
std::optional<uint64_t> unit_factor(std::string_view unit) {
  if (unit.empty() || unit == "B" || unit == "b") return 1;
  constexpr std::string_view kSmall = "kmgt", kLarge = "KMGT";
  const size_t small = kSmall.find(unit[0]), large = kLarge.find(unit[0]);
  if (small == std::string_view::npos && large == std::string_view::npos) return std::nullopt;
  const size_t power = 1 + (small != std::string_view::npos ? small : large);
  const std::string_view rest = unit.substr(1);
  uint64_t base;
  if (rest == "i" || rest == "I" || rest == "iB" || rest == "IB" || rest == "ib") {
    base = 1024;
  } else if (rest == "B" || rest == "b") {
    base = 1000;
  } else if (rest.empty()) {
    base = small != std::string_view::npos ? 1000 : 1024;
  } else {
    return std::nullopt;
  }
  uint64_t factor = 1;
  for (size_t i = 0; i < power; ++i) factor *= base;
  return factor;
}

}  // namespace

Result<int64_t> parse_size(std::string_view text, std::string_view what) {
  const auto failure = [&](const char* why) {
    return invalid_argument(std::string(what) + ": " + quote(text) + " " + why +
                            ", expected a size such as 4096, 32K (1024) or 1k (1000), 4GiB");
  };
  const std::string_view s = trimmed(text);
  // value = digits / scale; both stay below 2^63 and 10^12, so that the product fits 128 bits.
  Wide digits = 0;
  uint64_t scale = 1;
  size_t at = 0, count = 0;
  bool fraction = false;
  for (; at < s.size() && (is_digit(s[at]) || (s[at] == '.' && !fraction)); ++at) {
    if (s[at] == '.') {
      fraction = true;
      continue;
    }
    digits = digits * 10 + static_cast<unsigned>(s[at] - '0');
    if (fraction) scale *= 10;
    ++count;
    if (digits > static_cast<Wide>(std::numeric_limits<int64_t>::max())) return failure("is too large");
    if (scale > 1'000'000'000'000) return failure("has too many decimals");
  }
  if (count == 0 || (fraction && scale == 1)) return failure("is not a size");
  const std::optional<uint64_t> factor = unit_factor(trimmed(s.substr(at)));
  if (!factor) return failure("is not a size");
  const Wide product = digits * *factor;
  if (product % scale != 0) return failure("is not a whole number");
  if (product / scale > static_cast<Wide>(std::numeric_limits<int64_t>::max())) return failure("is too large");
  return static_cast<int64_t>(product / scale);
}

std::string format_bytes(uint64_t bytes) {
  if (bytes < 1024) return std::to_string(bytes) + " B";
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  // 1023.5 would print as "1024 KiB"
  while (value >= 1023.5) {
    value /= 1024;
    ++unit;
  }
  const int decimals = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
  char out[32];
  std::snprintf(out, sizeof(out), "%.*f %s", decimals, value, kUnits[unit]);
  return out;
}

}  // namespace halfbyte
