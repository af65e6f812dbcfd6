#include "text/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/utf8.h"
#include "text/utf8_scan.h"

namespace halfbyte {
namespace {

// utf8proc names Hangul syllables and nothing else longer than this many code points in canonical decomposition (4).
constexpr int kMaxDecomposition = 16;

// STABLE keeps utf8proc from composing what Unicode excludes from composition.
constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

// Below this every character is stable; U+0300 is the first mark that composes.
constexpr uint32_t kFirstUnstable = 0x300;
// No character above plane 2 takes part in normalisation, and Unicode has no plans to place one there.
constexpr uint32_t kEnd = 0x30000;

// Characters that neither change under NFC nor touch the character before them: not a mark that is reordered, not the
// second half of a composition, not decomposed or replaced. Text made of these alone is in NFC, and text may be cut
// before each of them.
class StableCharacters {
 public:
  static const StableCharacters& get() {
    static const StableCharacters stable;
    return stable;
  }
  bool has(uint32_t c) const { return c < kFirstUnstable || c >= kEnd || !(unstable_[c >> 6] >> (c & 63) & 1); }

 private:
  StableCharacters() {
    for (uint32_t c = kFirstUnstable; c < kEnd; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      const auto code_point = static_cast<utf8proc_int32_t>(c);
      const utf8proc_property_t* property = utf8proc_get_property(code_point);
      if (property->combining_class != 0) mark(c);
      std::array<utf8proc_int32_t, kMaxDecomposition> parts;
      const auto count = utf8proc_decompose_char(code_point, parts.data(), kMaxDecomposition, kDecompose, nullptr);
      if (count == 1 && parts[0] == code_point) continue;
      if (count < 1 || count > kMaxDecomposition) {
        mark(c);
        continue;
      }
      for (utf8proc_ssize_t i = 1; i < count; ++i) mark(static_cast<uint32_t>(parts[i]));
      auto length = utf8proc_normalize_utf32(parts.data(), count, kCompose);
      if (length != 1 || parts[0] != code_point) mark(c);
    }
  }
  void mark(uint32_t c) { unstable_[c >> 6] |= uint64_t{1} << (c & 63); }

  std::array<uint64_t, kEnd / 64> unstable_{};
};

// Where the longest prefix of stable characters ends.
const char* skip_stable(const char* p, const char* end, const StableCharacters& stable) {
  while (p < end) {
    if (static_cast<unsigned char>(*p) < 0xCC) {  // below U+0300
      p += static_cast<unsigned char>(*p) < 0x80 ? 1 : 2;
      continue;
    }
    const char* next = p;
    if (!stable.has(utf8_next(next))) return p;
    p = next;
  }
  return p;
}

// Decomposes, orders the marks and composes again.
void append_rewritten(std::string_view text, std::string& out) {
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(text.size());
  const char* p = text.data();
  const char* const end = p + text.size();
  while (p < end) {
    std::array<utf8proc_int32_t, kMaxDecomposition> parts;
    const auto code_point = static_cast<utf8proc_int32_t>(utf8_next(p));
    const auto count = utf8proc_decompose_char(code_point, parts.data(), kMaxDecomposition, kDecompose, nullptr);
    if (count < 1 || count > kMaxDecomposition) {
      characters.push_back(code_point);
    } else {
      characters.insert(characters.end(), parts.begin(), parts.begin() + count);
    }
  }
  const auto combining_class = [](utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; };
  for (size_t i = 0; i < characters.size();) {
    size_t j = i;
    while (j < characters.size() && combining_class(characters[j]) != 0) ++j;
    std::stable_sort(characters.begin() + static_cast<ptrdiff_t>(i), characters.begin() + static_cast<ptrdiff_t>(j),
                     [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    i = j + 1;
  }
  const auto length =
      utf8proc_normalize_utf32(characters.data(), static_cast<utf8proc_ssize_t>(characters.size()), kCompose);
  for (utf8proc_ssize_t i = 0; i < length; ++i) append_utf8(out, static_cast<char32_t>(characters[i]));
}

}  // namespace

bool is_surely_nfc(std::string_view text) {
  const char* const end = text.data() + text.size();
  return skip_stable(text.data(), end, StableCharacters::get()) == end;
}

void append_nfc(std::string_view text, std::string& out) {
  const StableCharacters& stable = StableCharacters::get();
  const char* done = text.data();
  const char* const end = done + text.size();
  while (done < end) {
    const char* unstable = skip_stable(done, end, stable);
    if (unstable == end) break;
    // The stable character before it may compose with it; those before that cannot be touched.
    const char* begin = unstable;
    if (begin > done) utf8_step_back(begin);
    out.append(done, begin);
    const char* stop = unstable;
    for (const char* next = stop; stop < end; stop = next) {
      if (stable.has(utf8_next(next))) break;
    }
    append_rewritten({begin, static_cast<size_t>(stop - begin)}, out);
    done = stop;
  }
  out.append(done, end);
}

}  // namespace halfbyte
