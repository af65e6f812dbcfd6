// A fixed pool of threads for loops over output rows (docs/threads.md). Work is split into contiguous ranges whose borders depend on the
// thread count, so a loop body must give the same result for any range (docs/numerics.md): never split a sum.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace halfbyte {

class ThreadPool {
 public:
  // threads >= 1; 1 runs everything on the caller's thread. The caller is one of the workers.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const;

  // Calls body(begin, end, thread) over [0, count), each range's begin a multiple of `grain`; returns when all are
  // done. thread is in [0, threads()), and no two calls with the same one run at once: it may choose scratch memory. A
  // thread may get several ranges, or one all of them. The body must not throw and must not call parallel_for on the same pool. One caller
  // at a time. Everything written before the call is visible in the body, and the body's writes after it.
  void parallel_for(int64_t count, int64_t grain,
                    const std::function<void(int64_t begin, int64_t end, int thread)>& body);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Physical cores this process may use: affinity mask, cgroup CPU quota and SMT siblings taken into account; at least 1.
int default_thread_count();

}  // namespace halfbyte
