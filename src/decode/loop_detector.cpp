#include "decode/loop_detector.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

namespace halfbyte {

bool ends_in_loop(std::span<const int32_t> tokens, const LoopRule& rule) {
  const auto n = static_cast<size_t>(rule.ngram), window = static_cast<size_t>(rule.window);
  if (rule.ngram < 1 || rule.times < 1 || rule.window < rule.ngram || tokens.size() < n) return false;
  if (tokens.size() > window) tokens = tokens.last(window);
  const auto last = tokens.last(n);
  int times = 0;
  for (size_t begin = 0; begin + n <= tokens.size(); ++begin)
    if (tokens[begin] == last[0] && std::ranges::equal(tokens.subspan(begin, n), last)) ++times;
  return times >= rule.times;
}

bool has_loop(std::span<const int32_t> tokens, const LoopRule& rule) {
  const auto n = static_cast<size_t>(rule.ngram), times = static_cast<size_t>(rule.times);
  const auto window = static_cast<size_t>(rule.window);
  if (rule.ngram < 1 || rule.times < 1 || tokens.size() < n + times - 1) return false;
  // Where each n-gram begins, equal ones side by side and in order: O(n log n) with no hash that could collide.
  std::vector<size_t> begins(tokens.size() - n + 1);
  std::iota(begins.begin(), begins.end(), size_t{0});
  const auto gram = [&](size_t begin) { return tokens.subspan(begin, n); };
  std::stable_sort(begins.begin(), begins.end(), [&](size_t a, size_t b) {
    return std::lexicographical_compare(gram(a).begin(), gram(a).end(), gram(b).begin(), gram(b).end());
  });
  for (size_t last = times - 1; last < begins.size(); ++last) {
    const size_t first = last - (times - 1);
    if (begins[last] - begins[first] + n > window || begins[last] < begins[first]) continue;
    if (std::ranges::equal(gram(begins[first]), gram(begins[last]))) return true;
  }
  return false;
}

}  // namespace halfbyte
