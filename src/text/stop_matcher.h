// Stop strings in streamed text. Nothing of a stop string is ever let out: text that could be the beginning of one is
// held back until it is decided. However the text is cut, the result is the same.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace halfbyte {

// The stop strings of a request as an Aho-Corasick automaton. Thread-safe.
class StopSet {
 public:
  // kInvalidArgument: an empty stop string, or one that is not UTF-8. No strings at all are fine.
  static Result<std::shared_ptr<const StopSet>> create(std::vector<std::string> stops);

  const std::vector<std::string>& stops() const { return stops_; }

 private:
  friend class StopMatcher;
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int32_t fail = 0;    // the longest other suffix that begins a stop string
    int32_t match = -1;  // the longest stop string that ends here
    int32_t stop = 0;    // a stop string that passes here...
    int32_t depth = 0;   // ...with so many bytes
    char byte = 0;
  };
  int32_t child(int32_t node, char byte) const;
  int32_t next(int32_t node, char byte) const;

  std::vector<std::string> stops_;
  std::vector<Node> nodes_;  // 0 is the start
};

// Thread-compatible. The stop string that ends first counts; of those that end together, the longest.
class StopMatcher {
 public:
  // With `include_stop` the stop string itself ends the text.
  StopMatcher(std::shared_ptr<const StopSet> set, bool include_stop)
      : set_(std::move(set)), include_stop_(include_stop) {}

  // Appends to `out` what is certain. True when a stop string is complete; then the text ends before it, and neither
  // the rest of `text` nor any later piece counts.
  bool push(std::string_view text, std::string& out);
  // No more text comes: lets out what was held back.
  void flush(std::string& out);
  // Which of StopSet::stops() was found.
  std::optional<size_t> found() const;
  // The text that waits: a proper prefix of a stop string, whole characters or the beginning of the stop's next one.
  std::string_view held() const;

 private:
  std::shared_ptr<const StopSet> set_;
  bool include_stop_;
  int32_t node_ = 0;  // its path is the text held back
  int32_t found_ = -1;
};

}  // namespace halfbyte
