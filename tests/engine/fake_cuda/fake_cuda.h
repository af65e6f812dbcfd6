// A CUDA device played on the host: the runtime's calls and the kernels' host functions, linked in place of theirs, so that the
// host's side of the backend (passes, graphs, runner, memory) is tested without a device.
//
// A kernel writes nonsense over all that it may write, within the memory that it was given, and a draw takes the token that
// follows() says from what the pass was told of the row: its token and its position.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace halfbyte::fake_cuda {

inline constexpr int kMultiprocessors = 8;

struct State {
  size_t memory = size_t{8} << 30;
  size_t live = 0;           // bytes of device memory that are taken
  uint64_t makes = 0;        // allocations so far
  uint64_t captures = 0;     // graphs
  uint64_t class_reads = 0;  // draws under a policy whose step classes are on the device
  uint64_t faults = 0;       // kernels that were to touch memory that nobody has, or more than one piece of it
  bool wgmma = true;
};
State& state();

// Bytes of an allocation that belong together.
struct Piece {
  size_t offset = 0, bytes = 0;
};
// The next allocation of so many bytes has these pieces, some of them more than once: a kernel stays in one. False until it
// is made.
void divide_next(size_t bytes, const std::vector<Piece>& pieces);
bool divided();

inline constexpr int32_t kVocab = 1031;
// The token behind `token` at `position`.
constexpr int32_t follows(int32_t token, int32_t position) {
  return static_cast<int32_t>((int64_t{token} * 31 + int64_t{position} * 7 + 5) % kVocab);
}

}  // namespace halfbyte::fake_cuda
