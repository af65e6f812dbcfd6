// A fixed pool of threads for loops over output rows (docs/threads.md). Work is split into contiguous ranges whose
// borders depend on the thread count, so a loop body must give the same result for any range (docs/numerics.md): never
// split a sum.
#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"

namespace halfbyte {

// More is a mistake in a setting, not a machine.
inline constexpr int kMaxThreads = 4096;

class ThreadPool {
 public:
  // 1 runs everything on the caller's thread; the caller is one of the workers. When the system refuses a thread, the
  // pool has as many as it got: see threads().
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(begin, end, thread) over [0, count), each range's begin a multiple of `grain`; returns when all are
  // done. thread is in [0, threads()), and no two calls with the same one run at once: it may choose scratch memory. A
  // thread may get several ranges, or one all of them. The body must not call parallel_for on the same pool. When
  // it throws (memory ran out), the other pieces still run and the first exception comes out of parallel_for. One caller
  // at a time. Everything written before the call is visible in the body, and the body's writes after it. Allocates
  // nothing.
  template <class Body>
  void parallel_for(int64_t count, int64_t grain, const Body& body) {
    run(count, grain, &body, [](const void* b, int64_t begin, int64_t end, int thread) {
      (*static_cast<const Body*>(b))(begin, end, thread);
    });
  }

 private:
  struct Impl;
  using Call = void (*)(const void* body, int64_t begin, int64_t end, int thread);
  void run(int64_t count, int64_t grain, const void* body, Call call);
  std::unique_ptr<Impl> impl_;
};

// kResourceExhausted when the pool has fewer threads than a person asked for; 0 asks for none in particular.
Status check_threads(const ThreadPool& pool, int asked);

}  // namespace halfbyte
