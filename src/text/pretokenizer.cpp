#include "text/pretokenizer.h"

#include <utility>

#include "text/unicode_classes.h"
#include "text/utf8_scan.h"

namespace halfbyte {
namespace {

// Reads classes of characters from valid UTF-8.
class Scanner {
 public:
  Scanner(const char* end, const UnicodeClasses& classes) : end_(end), classes_(classes) {}

  const char* end() const { return end_; }

  // The class of the character at p < end, and where the next one begins.
  CharClass read(const char* p, const char*& next) const {
    const auto byte = static_cast<unsigned char>(*p);
    if (byte < 0x80) {
      next = p + 1;
      return classes_.of_ascii(byte);
    }
    next = p;
    return classes_.of(utf8_next(next));
  }

  // Behind the longest run of characters from p whose class `in` accepts, at most `max` of them.
  template <class In>
  const char* run(const char* p, In in, size_t max = SIZE_MAX) const {
    const char* next;
    for (; max > 0 && p < end_ && in(read(p, next)); --max) p = next;
    return p;
  }

 private:
  const char* end_;
  const UnicodeClasses& classes_;
};

bool is_newline(char c) {
  return c == '\r' || c == '\n';
}
char ascii_lower(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

// 's|'t|'re|'ve|'m|'ll|'d at p, which points to the apostrophe. Behind it, or null.
template <bool kIgnoreCase>
const char* contraction(const char* p, const char* end) {
  const auto letter = [&](int i) {
    if (end - p <= i) return '\0';
    return kIgnoreCase ? ascii_lower(p[i]) : p[i];
  };
  switch (letter(1)) {
    case 's':
    case 't':
    case 'm':
    case 'd': return p + 2;
    case 'r':
    case 'v': return letter(2) == 'e' ? p + 3 : nullptr;
    case 'l': return letter(2) == 'l' ? p + 3 : nullptr;
    case '\xC5':  // U+017F, the long s, is an s when case is ignored
      return kIgnoreCase && letter(2) == '\xBF' ? p + 3 : nullptr;
    default: return nullptr;
  }
}

// \s*[\r\n]+ (if asked) | \s+(?!\S) | \s+ at p, which points to white space.
template <bool kNewlineRule>
const char* white_space(const char* p, const Scanner& in) {
  const char* last = p;                // the last character of the run
  const char* newlines_end = nullptr;  // behind the run's last newline
  const char* next = p;
  const char* q = p;
  while (q < in.end() && in.read(q, next) == CharClass::kSpace) {
    if (kNewlineRule && is_newline(*q)) newlines_end = next;
    last = q;
    q = next;
  }
  if (newlines_end) return newlines_end;
  // The run's last character is left to what follows, unless it is all there is.
  return q == in.end() || last == p ? q : last;
}

struct Gpt2Rules {
  static const char* next(const char* p, const Scanner& in) {
    if (*p == '\'') {
      if (const char* end = contraction</*kIgnoreCase=*/false>(p, in.end())) return end;
    }
    const char* next;
    CharClass c = in.read(p, next);
    if (*p == ' ' && next < in.end()) c = in.read(next, next);
    switch (c) {
      case CharClass::kLetter: return in.run(next, [](CharClass x) { return x == CharClass::kLetter; });
      case CharClass::kNumber: return in.run(next, [](CharClass x) { return x == CharClass::kNumber; });
      case CharClass::kSpace: return white_space</*kNewlineRule=*/false>(p, in);
      default: return in.run(next, [](CharClass x) { return x == CharClass::kOther || x == CharClass::kMark; });
    }
  }
};

// The family of regular expressions that began with cl100k_base.
template <size_t kMaxDigits, bool kMarksAreLetters>
struct Cl100kRules {
  static bool is_letter(CharClass c) { return c == CharClass::kLetter || (kMarksAreLetters && c == CharClass::kMark); }
  static bool is_rest(CharClass c) { return c == CharClass::kOther || (!kMarksAreLetters && c == CharClass::kMark); }

  static const char* next(const char* p, const Scanner& in) {
    if (*p == '\'') {
      if (const char* end = contraction</*kIgnoreCase=*/true>(p, in.end())) return end;
    }
    const char* next;
    const CharClass c = in.read(p, next);
    if (is_letter(c)) return in.run(next, is_letter);
    if (c == CharClass::kNumber) {
      return in.run(
          next, [](CharClass x) { return x == CharClass::kNumber; }, kMaxDigits - 1);
    }
    CharClass second = CharClass::kSpace;  // like the end of the text: begins none of the pieces below
    const char* after_second = next;
    if (next < in.end()) second = in.read(next, after_second);
    if (is_letter(second) && !is_newline(*p)) return in.run(after_second, is_letter);
    if (is_rest(c) || (*p == ' ' && is_rest(second))) {
      const char* q = in.run(next, is_rest);
      while (q < in.end() && is_newline(*q)) ++q;
      return q;
    }
    return white_space</*kNewlineRule=*/true>(p, in);
  }
};

template <class Rules>
class RuleSplitter : public Splitter {
 public:
  explicit RuleSplitter(std::string name) : name_(std::move(name)) {}
  const std::string& name() const override { return name_; }

  Status split(std::string_view text, Piece whole, std::vector<Piece>& out) const override {
    const char* const base = text.data();
    const char* p = base + whole.begin;
    const char* const end = base + whole.end;
    const Scanner in(end, UnicodeClasses::get());
    while (p < end) {
      const char* q = Rules::next(p, in);
      out.push_back({static_cast<uint32_t>(p - base), static_cast<uint32_t>(q - base)});
      p = q;
    }
    return {};
  }

 private:
  std::string name_;
};

template <bool kIndividual>
struct DigitsRules {
  static const char* next(const char* p, const Scanner& in) {
    const auto is_number = [](CharClass x) { return x == CharClass::kNumber; };
    const char* next;
    if (!is_number(in.read(p, next))) return in.run(next, [](CharClass x) { return x != CharClass::kNumber; });
    return kIndividual ? next : in.run(next, is_number);
  }
};

}  // namespace

std::unique_ptr<Splitter> make_gpt2_splitter() {
  return std::make_unique<RuleSplitter<Gpt2Rules>>("gpt-2");
}
std::unique_ptr<Splitter> make_qwen2_splitter() {
  return std::make_unique<RuleSplitter<Cl100kRules<1, false>>>("qwen2");
}
std::unique_ptr<Splitter> make_llama3_splitter() {
  return std::make_unique<RuleSplitter<Cl100kRules<3, false>>>("llama-bpe");
}
std::unique_ptr<Splitter> make_qwen35_splitter() {
  return std::make_unique<RuleSplitter<Cl100kRules<1, true>>>("qwen35");
}
std::unique_ptr<Splitter> make_digits_splitter(bool individual) {
  if (individual) return std::make_unique<RuleSplitter<DigitsRules<true>>>("digits");
  return std::make_unique<RuleSplitter<DigitsRules<false>>>("digit runs");
}

std::unique_ptr<Splitter> known_regex_splitter(std::string_view pattern) {
  if (pattern == R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)") {
    return make_gpt2_splitter();
  }
  if (pattern ==
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)") {
    return make_qwen2_splitter();
  }
  if (pattern ==
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)") {
    return make_llama3_splitter();
  }
  if (pattern ==
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)") {
    return make_qwen35_splitter();
  }
  return nullptr;
}

void Pretokenizer::add(std::unique_ptr<Splitter> stage) {
  stages_.push_back(std::move(stage));
}

std::string Pretokenizer::name() const {
  std::string all;
  for (const auto& stage : stages_) {
    if (!all.empty()) all += " + ";
    all += stage->name();
  }
  return all.empty() ? "none" : all;
}

Status Pretokenizer::split(std::string_view text, std::vector<Piece>& scratch, std::vector<Piece>& out) const {
  out.clear();
  if (text.empty()) return {};
  out.push_back({0, static_cast<uint32_t>(text.size())});
  for (const auto& stage : stages_) {
    scratch.swap(out);
    out.clear();
    for (const Piece& piece : scratch) HB_TRY(stage->split(text, piece, out));
  }
  return {};
}

}  // namespace halfbyte
