#include "kernels/read_bandwidth.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/percentile.h"

namespace halfbyte {
namespace {

constexpr size_t kLine = 64;

// Prefetches go into the first-level cache (near), the second-level cache (far), or both; 0: the hardware's alone.
struct Pattern {
  int streams;
  size_t near_bytes;
  size_t far_bytes;
};
constexpr Pattern kPatterns[] = {{1, 0, 0},    {1, 1024, 0}, {1, 4096, 0}, {1, 0, 4096},    {1, 0, 8192},
                                 {2, 0, 0},    {2, 2048, 0}, {2, 0, 4096}, {2, 1024, 8192}, {4, 0, 0},
                                 {4, 1024, 0}, {4, 2048, 0}, {8, 1024, 0}};

// Reads every word of [p, p + bytes), a line of each stream in turn.
template <int kStreams>
uint64_t read_range(const std::byte* p, size_t bytes, const Pattern& pattern) {
  const size_t part = bytes / kStreams / kLine * kLine;
  uint64_t sum[8] = {};
  for (size_t at = 0; at < part; at += kLine) {
    for (int s = 0; s < kStreams; ++s) {
      const std::byte* line = p + static_cast<size_t>(s) * part + at;
      if (pattern.near_bytes != 0) __builtin_prefetch(line + pattern.near_bytes, 0, 3);
      if (pattern.far_bytes != 0) __builtin_prefetch(line + pattern.far_bytes, 0, 2);
      uint64_t words[8];
      std::memcpy(words, line, kLine);
      for (int i = 0; i < 8; ++i) sum[i] ^= words[i];
    }
  }
  return (sum[0] ^ sum[1]) ^ (sum[2] ^ sum[3]) ^ (sum[4] ^ sum[5]) ^ (sum[6] ^ sum[7]);
}

uint64_t read_range(const Pattern& pattern, const std::byte* p, size_t bytes) {
  switch (pattern.streams) {
    case 1: return read_range<1>(p, bytes, pattern);
    case 2: return read_range<2>(p, bytes, pattern);
    case 4: return read_range<4>(p, bytes, pattern);
    default: return read_range<8>(p, bytes, pattern);
  }
}

}  // namespace

ReadProbe::ReadProbe(ThreadPool& pool, size_t bytes)
    : pool_(pool), buffer_(Buffer::allocate(bytes)), sink_(static_cast<size_t>(pool.threads()) * 8) {
  pool.parallel_for(static_cast<int64_t>(bytes / 4096), 1, [&](int64_t begin, int64_t end, int) {
    std::memset(buffer_.mutable_bytes().data() + begin * 4096, 0x3A, static_cast<size_t>(end - begin) * 4096);
  });
  // The patterns take turns, so that a disturbance hits them alike.
  std::vector<double> times[std::size(kPatterns)];
  const size_t sample = std::min<size_t>(bytes, size_t{16} << 20);
  for (int round = 0; round < 15; ++round) {
    for (size_t i = 0; i < std::size(kPatterns); ++i) times[i].push_back(read_with(i, sample));
  }
  double best = 1e30;
  for (size_t i = 0; i < std::size(kPatterns); ++i) {
    const double t = median(times[i]);
    if (t >= best) continue;
    best = t;
    best_ = i;
  }
  const Pattern& best_pattern = kPatterns[best_];
  pattern_ = std::to_string(best_pattern.streams) + " streams a thread, prefetch " +
             std::to_string(best_pattern.near_bytes) + " B near, " + std::to_string(best_pattern.far_bytes) + " B far";
}

double ReadProbe::read(size_t bytes) {
  return read_with(best_, bytes);
}

double ReadProbe::read_with(size_t pattern, size_t bytes) {
  bytes = std::min(bytes, buffer_.size());
  if (next_ + bytes > buffer_.size()) next_ = 0;
  const std::byte* from = buffer_.bytes().data() + next_;
  next_ += bytes;
  const auto lines = static_cast<int64_t>(bytes / kLine);
  const Stopwatch clock;
  pool_.parallel_for(lines, 1, [&](int64_t begin, int64_t end, int thread) {
    sink_[static_cast<size_t>(thread) * 8] ^= read_range(kPatterns[pattern], from + begin * static_cast<int64_t>(kLine),
                                                         static_cast<size_t>(end - begin) * kLine);
  });
  return clock.seconds();
}

}  // namespace halfbyte
