// Time for measuring: monotonic, in seconds.
#pragma once

#include <chrono>

namespace halfbyte {

// Runs from its making or the last restart(). Thread-compatible.
class Stopwatch {
 public:
  double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  void restart() { start_ = Clock::now(); }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_ = Clock::now();
};

}  // namespace halfbyte
