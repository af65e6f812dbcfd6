// Pre-tokenisers: they cut text into pieces that byte-level BPE then encodes one by one.
//
// The rules of the supported models are hand-written scanners, linear in the text; any other regular expression runs in
// PCRE2. A tokenizer.json lists stages; each stage cuts the pieces of the one before.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

// Bytes [begin, end) of the text being cut; never empty.
struct Piece {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool operator==(const Piece&) const = default;
};

// One stage. Thread-safe.
class Splitter {
 public:
  virtual ~Splitter() = default;
  virtual const std::string& name() const = 0;
  // Cuts the part `whole` of `text` (valid UTF-8, below 4 GiB) and appends the pieces in order. What surrounds the part
  // is not looked at.
  virtual Status split(std::string_view text, Piece whole, std::vector<Piece>& out) const = 0;
};

// 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
std::unique_ptr<Splitter> make_gpt2_splitter();

// (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
std::unique_ptr<Splitter> make_qwen2_splitter();

// As qwen2 with \p{N}{1,3} in place of \p{N}.
std::unique_ptr<Splitter> make_llama3_splitter();

// As qwen2 with marks counted as letters: [\p{L}\p{M}] in place of \p{L} and [^\s\p{L}\p{M}\p{N}] for the rest, but the
// optional first character stays [^\r\n\p{L}\p{N}].
std::unique_ptr<Splitter> make_qwen35_splitter();

// tokenizer.json's "Digits": each character of category N alone, or each run of them.
std::unique_ptr<Splitter> make_digits_splitter(bool individual);

// The scanner for a regular expression that one is written for, with matches and gaps both kept as pieces; else null.
std::unique_ptr<Splitter> known_regex_splitter(std::string_view pattern);

struct RegexSplitOptions {
  bool literal = false;         // the pattern is plain text
  bool remove_matches = false;  // "Removed"; else matches and gaps are both pieces: "Isolated"
  bool invert = false;          // swaps matches and gaps
};

// Any regular expression as the tokenizers package reads it (Oniguruma, Ruby syntax), run by PCRE2 with limits. What
// the two engines read differently is refused by name (kUnsupported). A text that needs more than the limits:
// kResourceExhausted.
Result<std::unique_ptr<Splitter>> make_regex_splitter(std::string_view pattern, const RegexSplitOptions& options);

// Stages in order. Thread-safe; the scratch space belongs to one thread.
class Pretokenizer {
 public:
  void add(std::unique_ptr<Splitter> stage);
  // "gpt-2", "digits + gpt-2", "none".
  std::string name() const;
  // Replaces `out` by the pieces of `text`, below 4 GiB.
  Status split(std::string_view text, std::vector<Piece>& scratch, std::vector<Piece>& out) const;

 private:
  std::vector<std::unique_ptr<Splitter>> stages_;
};

}  // namespace halfbyte
