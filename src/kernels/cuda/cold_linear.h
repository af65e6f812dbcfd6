// Timing of decode linears as a step meets them: weights in no cache, calls one after the other in a graph.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <vector>

#include "kernels/cuda/linear_table.h"
#include "kernels/cuda/ops.h"

namespace halfbyte::cuda {

inline constexpr size_t kColdBytes = size_t{256} << 20;  // four times an H200's L2

// A random linear whose weights stand in memory often enough that the next copy is never in the L2; and rows for it.
class ColdLinear {
 public:
  static Result<ColdLinear> make(WeightFormat format, int64_t n, int64_t k, int multiprocessors,
                                 size_t pool_bytes = kColdBytes);

  const Linear& view() const { return storage_.view; }
  int copies() const { return copies_; }
  size_t copy_bytes() const { return storage_.weights.size(); }
  const uint8_t* copy(int call) const {
    return pool_.as<uint8_t>() + static_cast<size_t>(call % copies_) * copy_bytes();
  }
  // The linear with the weights of copy `call` modulo their number; kernel: for FP4.
  Status run(int call, int rows, LinearKernel kernel, Launch launch) const;

 private:
  LinearStorage storage_;
  DeviceBuffer pool_, x_[5], partial_;  // x_: for 1, 2, 4, 8 and 16 rows
  int copies_ = 0;
};

// Calls of one kind as one graph, on a stream of its own.
class TimedCalls {
 public:
  // call(i, launch) puts call i on the stream. programmatic: as a decode step launches its kernels.
  static Result<TimedCalls> make(int calls, bool programmatic, const std::function<Status(int, Launch)>& call);
  TimedCalls(TimedCalls&& other) noexcept;
  TimedCalls& operator=(TimedCalls&& other) noexcept;
  ~TimedCalls();
  // us a call, by the device's events.
  Result<double> microseconds();

 private:
  TimedCalls() = default;
  int calls_ = 0;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  cudaGraphExec_t graph_ = nullptr;
};

// As read_all, by thread blocks of so many threads: the floor is the fastest of several.
Status read_by(const void* data, size_t bytes, int blocks, int threads, Launch launch);

// Times of every kernel that can run, for 1, 2, 4, 8 and 16 rows, the better of a few rounds: some 10 ms.
Result<std::vector<LinearTimes>> measure_linear(int64_t n, int64_t k, int multiprocessors);

}  // namespace halfbyte::cuda
