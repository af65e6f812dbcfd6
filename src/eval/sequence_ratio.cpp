#include "eval/sequence_ratio.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/utf8.h"

namespace halfbyte {
namespace {

std::u32string characters(std::string_view text) {
  std::u32string out;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = next_code_point(text, at);
    out.push_back(c.code_point);
    at += c.length;
  }
  return out;
}

struct Block {
  size_t a, b, size;
};
struct Range {
  size_t a_begin, a_end, b_begin, b_end;
};

class Matcher {
 public:
  Matcher(std::u32string a, std::u32string b) : a_(std::move(a)), b_(std::move(b)) {
    for (size_t j = 0; j < b_.size(); ++j) places_[b_[j]].push_back(j);
    if (b_.size() >= 200) {  // autojunk
      const size_t most = b_.size() / 100 + 1;
      std::erase_if(places_, [&](const auto& entry) { return entry.second.size() > most; });
    }
    runs_.assign(b_.size() + 1, 0);
    next_.assign(b_.size() + 1, 0);
  }

  // Characters in matching blocks: the longest one, then the same on both sides of it.
  size_t matches() {
    size_t sum = 0;
    std::vector<Range> open{{0, a_.size(), 0, b_.size()}};
    while (!open.empty()) {
      const Range r = open.back();
      open.pop_back();
      const Block found = longest(r);
      if (found.size == 0) continue;
      sum += found.size;
      if (r.a_begin < found.a && r.b_begin < found.b) open.push_back({r.a_begin, found.a, r.b_begin, found.b});
      const size_t a_after = found.a + found.size, b_after = found.b + found.size;
      if (a_after < r.a_end && b_after < r.b_end) open.push_back({a_after, r.a_end, b_after, r.b_end});
    }
    return sum;
  }

 private:
  // Of the longest blocks the one that starts first in a, of those the first in b; then wider by junk that is equal.
  Block longest(const Range& r) {
    Block best{r.a_begin, r.b_begin, 0};
    // runs_[j + 1]: length of the match that ends at a[i - 1] and b[j].
    std::vector<size_t> set, set_next;
    for (size_t i = r.a_begin; i < r.a_end; ++i) {
      if (const auto at = places_.find(a_[i]); at != places_.end()) {
        auto j = std::lower_bound(at->second.begin(), at->second.end(), r.b_begin);
        for (; j != at->second.end() && *j < r.b_end; ++j) {
          const size_t run = runs_[*j] + 1;
          next_[*j + 1] = run;
          set_next.push_back(*j + 1);
          if (run > best.size) best = {i + 1 - run, *j + 1 - run, run};
        }
      }
      for (const size_t j : set) runs_[j] = 0;
      std::swap(runs_, next_);
      std::swap(set, set_next);
      set_next.clear();
    }
    for (const size_t j : set) runs_[j] = 0;
    while (best.a > r.a_begin && best.b > r.b_begin && a_[best.a - 1] == b_[best.b - 1])
      best = {best.a - 1, best.b - 1, best.size + 1};
    while (best.a + best.size < r.a_end && best.b + best.size < r.b_end &&
           a_[best.a + best.size] == b_[best.b + best.size])
      ++best.size;
    return best;
  }

  std::u32string a_, b_;
  std::unordered_map<char32_t, std::vector<size_t>> places_;  // in b, rising
  std::vector<size_t> runs_, next_;
};

}  // namespace

double sequence_ratio(std::string_view a, std::string_view b) {
  std::u32string left = characters(a), right = characters(b);
  const size_t length = left.size() + right.size();
  if (length == 0) return 1;
  return 2.0 * static_cast<double>(Matcher(std::move(left), std::move(right)).matches()) / static_cast<double>(length);
}

}  // namespace halfbyte
