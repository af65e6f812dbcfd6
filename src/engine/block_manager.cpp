#include "engine/block_manager.h"

#include <cassert>
#include <cstddef>

namespace halfbyte {

BlockManager::BlockManager(int64_t pages, int64_t page_tokens) : total_(pages), page_tokens_(page_tokens) {
  free_.reserve(static_cast<size_t>(pages));
  for (int64_t page = pages - 1; page >= 0; --page) free_.push_back(static_cast<int32_t>(page));
}

bool BlockManager::extend(BlockTable& table, int64_t tokens) {
  const int64_t missing = pages_for(tokens) - static_cast<int64_t>(table.size());
  if (missing > free_pages()) return false;
  for (int64_t i = 0; i < missing; ++i) {
    table.push_back(free_.back());
    free_.pop_back();
  }
  return true;
}

void BlockManager::release(BlockTable& table) {
  for (auto page = table.rbegin(); page != table.rend(); ++page) free_.push_back(*page);
  table.clear();
  assert(free_pages() <= total_ && "a page was released twice");
}

}  // namespace halfbyte
