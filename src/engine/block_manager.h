// Which pages of the KV cache are free, and which a sequence holds. Numbers only: the bytes are the runner's.
#pragma once

#include <cstdint>
#include <vector>

namespace halfbyte {

// A sequence's pages in order: position p lies in pages[p / page_tokens].
using BlockTable = std::vector<int32_t>;

// Thread-compatible.
class BlockManager {
 public:
  BlockManager(int64_t pages, int64_t page_tokens);

  int64_t page_tokens() const { return page_tokens_; }
  int64_t total_pages() const { return total_; }
  int64_t free_pages() const { return static_cast<int64_t>(free_.size()); }
  int64_t pages_for(int64_t tokens) const { return (tokens + page_tokens_ - 1) / page_tokens_; }

  // Extends `table` until it holds `tokens` tokens. False, and nothing changed, when the free pages are too few.
  bool extend(BlockTable& table, int64_t tokens);
  // How many tokens `table` could hold with every free page added.
  int64_t reachable_tokens(const BlockTable& table) const {
    return (static_cast<int64_t>(table.size()) + free_pages()) * page_tokens_;
  }
  void release(BlockTable& table);

 private:
  int64_t total_;
  int64_t page_tokens_;
  std::vector<int32_t> free_;  // a stack: the page freed last is used first, while it is warm in the caches
};

}  // namespace halfbyte
