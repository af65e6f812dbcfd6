#include "text/unicode_classes.h"

#include <algorithm>
#include <cassert>

namespace halfbyte {
namespace {

constexpr uint32_t kRanges[] = {
#include "text/unicode_classes_data.inc"
};

}  // namespace

const UnicodeClasses& UnicodeClasses::get() {
  static const UnicodeClasses classes;
  return classes;
}

UnicodeClasses::UnicodeClasses() {
  size_t range = 0;
  for (uint32_t page = 0; page < page_of_.size(); ++page) {
    Page values;
    for (uint32_t i = 0; i < 256; ++i) {
      const uint32_t c = page << 8 | i;
      while (range + 1 < std::size(kRanges) && kRanges[range + 1] >> 4 <= c) ++range;
      values[i] = static_cast<uint8_t>(kRanges[range] & 15);
    }
    // Neighbouring planes repeat the last page; a full search for equals would cost more than it saves.
    const auto begin = pages_.size() > 8 ? pages_.end() - 8 : pages_.begin();
    const auto same = std::find(begin, pages_.end(), values);
    page_of_[page] = static_cast<uint8_t>(same - pages_.begin());
    if (same == pages_.end()) pages_.push_back(values);
  }
  assert(pages_.size() <= 256);
  for (unsigned char b = 0; b < 128; ++b) ascii_[b] = of(b);
}

}  // namespace halfbyte
