// How fast this machine's threads read memory: the roofline that benches and `halfbyte bench` compare with.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "tensor/buffer.h"

namespace halfbyte {

// Reads a range of a buffer with all threads of a pool, each its own contiguous part, in the fastest of several
// patterns (streams a thread, prefetches). Thread-compatible.
class ReadProbe {
 public:
  // Allocates and touches `bytes` (much more than the caches) and finds the pattern. About half a second.
  ReadProbe(ThreadPool& pool, size_t bytes);

  // Reads `bytes` from a place that moves on with every call, so that no cache helps; seconds.
  double read(size_t bytes);

  // The pattern that was found fastest, e.g. "1 streams a thread, prefetch 0 B near, 8192 B far".
  const std::string& pattern() const { return pattern_; }

 private:
  double read_with(size_t pattern, size_t bytes);

  ThreadPool& pool_;
  Buffer buffer_;
  size_t next_ = 0;
  size_t best_ = 0;
  std::string pattern_;
  std::vector<uint64_t> sink_;  // what was read, per thread: keeps the loads alive
};

}  // namespace halfbyte
