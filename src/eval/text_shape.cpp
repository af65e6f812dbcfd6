#include "eval/text_shape.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <unordered_map>
#include <vector>

namespace halfbyte {
namespace {

using Bag = std::unordered_map<int32_t, double>;

double cosine(const Bag& a, const Bag& b) {
  double dot = 0, aa = 0, bb = 0;
  for (const auto& [token, count] : a) {
    aa += count * count;
    if (const auto other = b.find(token); other != b.end()) dot += count * other->second;
  }
  for (const auto& [token, count] : b) bb += count * count;
  return dot / std::sqrt(aa * bb);
}

// [begin, end) of each step, its ending blank line left out; empty ones do not count.
std::vector<std::span<const int32_t>> steps_of(std::span<const int32_t> tokens, const StepClasses& classes) {
  std::vector<std::span<const int32_t>> steps;
  size_t begin = 0;
  bool after_newline = false;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint8_t c = step_class(classes, tokens[i]);
    const bool ends = c == 2 || (c == 1 && after_newline);
    after_newline = c == 1;
    if (!ends) continue;
    if (i > begin) steps.push_back(tokens.subspan(begin, i - begin));
    begin = i + 1;
  }
  if (begin < tokens.size()) steps.push_back(tokens.subspan(begin));
  return steps;
}

}  // namespace

TextShape text_shape(std::span<const int32_t> tokens, const StepClasses& classes) {
  TextShape out;
  constexpr size_t kGram = 4;
  std::set<std::array<int32_t, kGram>> earlier, own;
  Bag last;
  int64_t grams = 0, again = 0;
  for (const auto step : steps_of(tokens, classes)) {
    own.clear();
    for (size_t i = 0; i + kGram <= step.size(); ++i) {
      std::array<int32_t, kGram> gram{};
      std::copy_n(step.begin() + static_cast<std::ptrdiff_t>(i), kGram, gram.begin());
      ++grams;
      again += earlier.contains(gram);
      own.insert(gram);
    }
    earlier.merge(own);
    Bag bag;
    for (const int32_t token : step) ++bag[token];
    if (out.steps > 0) out.alike += cosine(last, bag);
    last = std::move(bag);
    ++out.steps;
  }
  if (grams > 0) out.repeated = static_cast<double>(again) / static_cast<double>(grams);
  if (out.steps > 1) out.alike /= static_cast<double>(out.steps - 1);
  return out;
}

}  // namespace halfbyte
