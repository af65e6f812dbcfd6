// Time for measuring: monotonic, in seconds.
#pragma once

#include <chrono>

namespace halfbyte {

// Runs from its making. Thread-safe: it never changes.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace halfbyte
