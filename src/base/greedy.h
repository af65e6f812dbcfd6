// Where drawing ends: the one limit that samplers, defaults and tools share (docs/numerics.md 4).
#pragma once

namespace halfbyte {

// A temperature up to this one is greedy: the most likely token is taken, the lowest id of equals.
inline constexpr float kGreedyTemperature = 1e-6f;

}  // namespace halfbyte
