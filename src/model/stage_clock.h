// Where the time of steps goes: seconds by the kind of work, of the thread that steps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/clock.h"

namespace halfbyte {

// What makes a linear's input is done a row at a time together with the rounding to its kernel's form, and timed together.
enum class Stage : uint8_t {
  kEmbedding,  // and the angles of positions
  kNorm,       // additions to the residual stream, its norms, and their rounding for q, k, v, gate and up
  kLinear,     // the products
  kRotation,   // norms of q and k, rotation, keys and values into the cache
  kAttention,
  kRounding,    // of attention's results
  kActivation,  // SiLU times up, and its rounding
  kHead,        // the last addition, final norm, rounding and product
  kSampling,
};
inline constexpr std::array kStageNames = {"embedding", "norm",       "linear", "rotation", "attention",
                                           "rounding",  "activation", "head",   "sampling"};

// Not thread-safe.
class StageClock {
 public:
  double seconds(size_t stage) const { return seconds_[stage]; }

 private:
  friend class StageTimer;
  std::array<double, kStageNames.size()> seconds_{};
  bool running_ = false;
};

// Adds the time from here to the end of the block to a stage of `clock`, which may be null. Inside another timer's block
// it does nothing: the outer one counts.
class StageTimer {
 public:
  StageTimer(StageClock* clock, Stage stage) : clock_(clock), stage_(stage) {
    if (clock_ == nullptr || clock_->running_) {
      clock_ = nullptr;
      return;
    }
    clock_->running_ = true;
    watch_ = Stopwatch();
  }
  ~StageTimer() {
    if (clock_ == nullptr) return;
    clock_->seconds_[static_cast<size_t>(stage_)] += watch_.seconds();
    clock_->running_ = false;
  }
  StageTimer(const StageTimer&) = delete;
  StageTimer& operator=(const StageTimer&) = delete;

 private:
  StageClock* clock_;
  Stage stage_;
  Stopwatch watch_;
};

}  // namespace halfbyte
