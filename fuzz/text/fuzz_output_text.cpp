// Streams against their definition: the bytes of the input, cut as its first bytes say, give the same text as uncut, through
// the UTF-8 assembler, stop strings and the reasoning splitter.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "base/utf8.h"
#include "text/detokenizer.h"
#include "text/reasoning.h"
#include "text/stop_matcher.h"

namespace {

using namespace halfbyte;

struct Result3 {
  std::string reasoning, answer;
  bool stopped = false;
  bool operator==(const Result3&) const = default;
};

Result3 run(const std::vector<std::string_view>& pieces, const std::shared_ptr<const StopSet>& stops,
            ReasoningState start) {
  Utf8Assembler assembler;
  StopMatcher matcher(stops, /*include_stop=*/false);
  ReasoningSplitter splitter(start);
  Result3 result;
  std::string characters, certain;
  const auto pass = [&](bool end) {
    certain.clear();
    result.stopped = matcher.push(characters, certain);
    if (end) matcher.flush(certain);
    splitter.push(certain, result.reasoning, result.answer);
    if (end) splitter.flush(result.reasoning, result.answer);
  };
  for (const std::string_view piece : pieces) {
    characters.clear();
    assembler.push(piece, characters);
    pass(/*end=*/false);
  }
  characters.clear();
  assembler.flush(characters);
  pass(/*end=*/true);
  if (find_invalid_utf8(result.reasoning) || find_invalid_utf8(result.answer)) std::abort();
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const StopSet> sets[] = {*StopSet::create({}), *StopSet::create({"\n\n", "</s>", "aab"}),
                                                        *StopSet::create({"<", "abab", "bab", "\u4e2d"})};
  if (size < 2) return 0;
  const auto start = static_cast<ReasoningState>(data[0] % 5);
  const auto& stops = sets[data[0] / 5 % 3];
  const size_t step = 1 + data[1] % 7;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  std::vector<std::string_view> pieces;
  for (size_t at = 0; at < bytes.size(); at += step) pieces.push_back(bytes.substr(at, step));
  const Result3 whole = run({bytes}, stops, start);
  if (!(run(pieces, stops, start) == whole)) {
    std::fprintf(stderr, "cutting changes the text\n");
    std::abort();
  }
  return 0;
}
