#include "io/name_pattern.h"

#include <pcre2.h>

#include <optional>
#include <utility>

#include "base/quote.h"

namespace halfbyte {
namespace {

constexpr size_t kMaxRegexBytes = 4096;
constexpr uint32_t kMatchLimit = 100'000;  // steps of one match; names are short
constexpr uint32_t kHeapLimitKib = 1024;

// One element of a [set] at `at` (just after '['); sets `at` after the ']'. Nothing when the set is not closed.
std::optional<bool> match_set(std::string_view pattern, size_t& at, char c) {
  size_t i = at;
  const bool negated = i < pattern.size() && pattern[i] == '!';
  if (negated) ++i;
  bool found = false, first = true;
  for (; i < pattern.size() && (first || pattern[i] != ']'); first = false) {
    if (i + 2 < pattern.size() && pattern[i + 1] == '-' && pattern[i + 2] != ']') {
      found = found || (pattern[i] <= c && c <= pattern[i + 2]);
      i += 3;
    } else {
      found = found || pattern[i] == c;
      ++i;
    }
  }
  if (i >= pattern.size()) return std::nullopt;
  at = i + 1;
  return found != negated;
}

struct MatchDeleter {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

bool fnmatch(std::string_view text, std::string_view pattern) {
  // Greedy with one way back, to the last '*': enough, since a later '*' can take over what an earlier one would.
  size_t t = 0, p = 0, star = std::string_view::npos, star_text = 0;
  while (t < text.size()) {
    bool matched = false;
    size_t next = p + 1;
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
      continue;
    }
    if (p < pattern.size() && pattern[p] == '[') {
      const auto in_set = match_set(pattern, next, text[t]);
      matched = in_set ? *in_set : text[t] == '[';
    } else if (p < pattern.size()) {
      matched = pattern[p] == '?' || pattern[p] == text[t];
    }
    if (matched) {
      p = next;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

struct NameRegex::Code {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

Result<std::shared_ptr<const NameRegex>> NameRegex::compile(std::string_view source) {
  if (source.size() > kMaxRegexBytes)
    return invalid_data("the regular expression has " + std::to_string(source.size()) + " bytes, expected at most " +
                        std::to_string(kMaxRegexBytes));
  auto code = std::make_shared<Code>();
  int failure = 0;
  PCRE2_SIZE at = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(), PCRE2_ANCHORED, &failure, &at,
                             /*ccontext=*/nullptr);
  if (code->code == nullptr) {
    PCRE2_UCHAR why[160] = {};
    pcre2_get_error_message(failure, why, sizeof why);
    return invalid_data("the regular expression " + quote(source) + " is broken at byte " + std::to_string(at) + ": " +
                        reinterpret_cast<const char*>(why));
  }
  code->context = pcre2_match_context_create(nullptr);
  if (code->context == nullptr) return resource_exhausted("no memory for a regular expression");
  pcre2_set_match_limit(code->context, kMatchLimit);
  pcre2_set_heap_limit(code->context, kHeapLimitKib);
  auto regex = std::make_shared<NameRegex>();
  regex->code_ = std::move(code);
  return std::shared_ptr<const NameRegex>(std::move(regex));
}

bool NameRegex::matches(std::string_view name) const {
  const std::unique_ptr<pcre2_match_data, MatchDeleter> match(pcre2_match_data_create(1, nullptr));
  if (!match) return false;
  return pcre2_match(code_->code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, 0, match.get(),
                     code_->context) >= 0;
}

Result<NamePattern> NamePattern::parse(std::string_view text) {
  NamePattern pattern{std::string(text), nullptr};
  if (text.starts_with("re:")) {
    HB_ASSIGN(pattern.regex, NameRegex::compile(text.substr(3)));
  }
  return pattern;
}

}  // namespace halfbyte
