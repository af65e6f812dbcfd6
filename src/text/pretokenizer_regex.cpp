// The fallback for regular expressions that have no hand-written scanner: PCRE2 with its just-in-time compiler.
#include <fmt/format.h>
#include <pcre2.h>

#include "base/utf8.h"
#include "text/pretokenizer.h"

namespace halfbyte {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
constexpr uint32_t kMatchLimit = 20'000'000;  // steps of backtracking inside one match
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackBytes = 1 << 20;

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct ContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct StackDeleter {
  void operator()(pcre2_jit_stack* stack) const { pcre2_jit_stack_free(stack); }
};

std::string pcre2_message(int code) {
  PCRE2_UCHAR text[160];
  return pcre2_get_error_message(code, text, sizeof text) < 0 ? fmt::format("PCRE2 error {}", code)
                                                              : reinterpret_cast<const char*>(text);
}

// Rewrites what Oniguruma (Ruby syntax, Unicode) and PCRE2 read differently; what cannot be rewritten is refused.
class PatternTranslator {
 public:
  explicit PatternTranslator(std::string_view pattern) : in_(pattern) {}

  Result<std::string> translate() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        HB_TRY(escape());
      } else {
        if (c == '[') ++class_depth_;
        if (c == ']' && class_depth_ > 0) --class_depth_;
        if (class_depth_ > 1) return refuse("a class inside a class");
        if (class_depth_ > 0 && in_.substr(at_, 2) == "&&") return refuse("&& inside a class");
        if (class_depth_ == 0 && c == '}' && in_.substr(at_ + 1, 1) == "+" && !after_property_) {
          return refuse("+ after a counted repeat");
        }
        after_property_ = false;
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  static Status refuse(const std::string& what) {
    return unsupported(fmt::format("{}, which Oniguruma and PCRE2 read differently", what));
  }

  Status escape() {
    if (at_ + 1 >= in_.size()) return invalid_data("a backslash at the end");
    const char c = in_[at_ + 1];
    const bool in_class = class_depth_ > 0;
    at_ += 2;
    after_property_ = false;
    switch (c) {
      case 's': out_ += "\\p{White_Space}"; return {};
      case 'S': out_ += "\\P{White_Space}"; return {};
      case 'w': out_ += in_class ? kWord : fmt::format("[{}]", kWord); return {};
      case 'W':
        if (in_class) return refuse("\\W inside a class");
        out_ += fmt::format("[^{}]", kWord);
        return {};
      case 'h': out_ += in_class ? "0-9a-fA-F" : "[0-9a-fA-F]"; return {};
      case 'H':
      case 'b':
      case 'B':
      case 'R':
      case 'X':
      case 'K':
      case 'G': return refuse(fmt::format("\\{}", c));
      case 'p':
      case 'P': {
        const size_t close = in_.find('}', at_);
        if (at_ < in_.size() && in_[at_] == '{' && close != std::string_view::npos) {
          out_ += fmt::format("\\{}{}", c, in_.substr(at_, close + 1 - at_));
          at_ = close + 1;
          after_property_ = true;
          return {};
        }
        break;
      }
      default: break;
    }
    out_ += '\\';
    out_ += c;
    return {};
  }

  // The superscripts and fractions of Latin-1 are a quirk of Oniguruma's table, measured.
  static constexpr const char* kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
  std::string_view in_;
  size_t at_ = 0;
  int class_depth_ = 0;
  bool after_property_ = false;  // the text so far ends with \p{...}
  std::string out_;
};

class RegexSplitter : public Splitter {
 public:
  RegexSplitter(std::unique_ptr<pcre2_code, CodeDeleter> code, const RegexSplitOptions& options, std::string name)
      : code_(std::move(code)), options_(options), name_(std::move(name)) {}

  const std::string& name() const override { return name_; }

  Status split(std::string_view text, Piece whole, std::vector<Piece>& out) const override {
    // Made once a call: the regular expressions that models really use are all scanned by hand.
    const std::unique_ptr<pcre2_match_data, MatchDeleter> data(
        pcre2_match_data_create_from_pattern(code_.get(), nullptr));
    const std::unique_ptr<pcre2_match_context, ContextDeleter> context(pcre2_match_context_create(nullptr));
    const std::unique_ptr<pcre2_jit_stack, StackDeleter> stack(
        pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr));
    if (!data || !context || !stack)
      return resource_exhausted("no memory to run the pre-tokeniser's regular expression");
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());

    const std::string_view part = text.substr(whole.begin, whole.end - whole.begin);
    const auto emit = [&](size_t begin, size_t end, bool is_match) {
      if (begin == end || (options_.remove_matches && is_match != options_.invert)) return;
      out.push_back({static_cast<uint32_t>(whole.begin + begin), static_cast<uint32_t>(whole.begin + end)});
    };
    size_t done = 0;    // pieces are out up to here
    size_t search = 0;  // where the next match may begin
    while (search <= part.size()) {
      const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(part.data()), part.size(), search,
                                    PCRE2_NO_UTF_CHECK, data.get(), context.get());
      if (found == PCRE2_ERROR_NOMATCH) break;
      if (found < 0) {
        return resource_exhausted(fmt::format("the pre-tokeniser's regular expression {} gave up at byte {}: {}", name_,
                                              whole.begin + search, pcre2_message(found)));
      }
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
      const size_t begin = ends[0] < done ? done : ends[0];  // \K is refused, so a match never begins before `search`
      emit(done, begin, /*is_match=*/false);
      emit(begin, ends[1], /*is_match=*/true);
      done = ends[1];
      search = ends[1];
      if (ends[1] == ends[0]) {  // an empty match cuts here; the next one must begin behind the next character
        if (search == part.size()) break;
        search += next_code_point(part, search).length;
      }
    }
    emit(done, part.size(), /*is_match=*/false);
    return {};
  }

 private:
  std::unique_ptr<pcre2_code, CodeDeleter> code_;
  RegexSplitOptions options_;
  std::string name_;
};

}  // namespace

Result<std::unique_ptr<Splitter>> make_regex_splitter(std::string_view pattern, const RegexSplitOptions& options) {
  if (pattern.size() > kMaxPatternBytes) {
    return unsupported(
        fmt::format("the regular expression has {} bytes, at most {} are allowed", pattern.size(), kMaxPatternBytes));
  }
  if (pattern.empty() || find_invalid_utf8(pattern)) {
    return invalid_data("the regular expression is empty or not UTF-8");
  }
  std::string translated(pattern);
  uint32_t flags = PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_LITERAL;
  if (!options.literal) {
    Result<std::string> rewritten = PatternTranslator(pattern).translate();
    if (!rewritten.ok()) return rewritten.status().with_context(fmt::format("regular expression \"{}\"", pattern));
    translated = std::move(rewritten).value();
    flags = PCRE2_UTF | PCRE2_NO_UTF_CHECK | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  }
  int error = 0;
  PCRE2_SIZE error_at = 0;
  std::unique_ptr<pcre2_code, CodeDeleter> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                                              translated.size(), flags, &error, &error_at, nullptr));
  if (!code) {
    return unsupported(
        fmt::format("PCRE2 cannot read the regular expression \"{}\": {}", pattern, pcre2_message(error)));
  }
  // Without the just-in-time compiler (some machines forbid it) matching works the same, only slower.
  (void)pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  std::string name = fmt::format("{}({})", options.literal ? "literal" : "regex", pattern);
  return std::unique_ptr<Splitter>(std::make_unique<RegexSplitter>(std::move(code), options, std::move(name)));
}

}  // namespace halfbyte
