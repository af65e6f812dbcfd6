// A parallel loop is cut into one contiguous share a thread, and each share into a few pieces: half of it, a quarter, an
// eighth and so on. A thread claims the pieces of its own share in order, then whatever a thread that is late has left. So
// on an idle machine each thread runs through long stretches, and on a busy one nobody waits for a sleeping thread. One of
// half the speed or more is behind its half when the others are done: they wait for a quarter of its share at most.
//
// What remains on a busy machine are threads that lose their CPU in the middle of a piece. A model's step is hundreds of
// loops, each as slow as its slowest thread; when waiting takes far longer than working, the caller runs alone for a while.
#include "base/thread_pool.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <exception>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/cpu_topology.h"

namespace halfbyte {
namespace {

constexpr int kPiecesPerShare = 8;
// About 50 us on a 3 GHz core: longer than the gaps between the operations of a decode step, shorter than what a
// sleeping thread takes to wake twice.
constexpr int kSpins = 1000;
// A loop is stalled when its caller waits at the end for this long, and for this many times what it worked itself.
constexpr std::chrono::nanoseconds kStall = std::chrono::milliseconds(1);
constexpr int kStallOfWork = 4;
// Stalls that are fewer loops apart than this come of a busy machine and not of chance. The loops that then run alone: so
// many at first, and twice as many each time.
constexpr int kLoopsApart = 64;
constexpr int kFirstAlone = 16, kMostAlone = 1024;

void cpu_relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

// The pieces of one share: claimed ones in the low half, all in the high half. One word, so that claiming a piece and
// knowing that the loop it belongs to still runs is one step. Own cache line: threads claim at the same time.
struct alignas(64) Share {
  std::atomic<uint64_t> word{0};

  void reset(uint32_t pieces) { word.store(uint64_t{pieces} << 32, std::memory_order_release); }

  // The next piece, or -1. A claim succeeds only while the loop waits for that piece, so what the loop's caller wrote
  // before reset() is visible and stays unchanged until the piece is reported done.
  int64_t claim() {
    uint64_t seen = word.load(std::memory_order_acquire);
    while (static_cast<uint32_t>(seen) < static_cast<uint32_t>(seen >> 32)) {
      if (word.compare_exchange_weak(seen, seen + 1, std::memory_order_acquire, std::memory_order_acquire))
        return static_cast<uint32_t>(seen);
    }
    return -1;
  }
};

}  // namespace

struct ThreadPool::Impl {
  explicit Impl(int wanted)
      : threads(std::max(1, wanted)), spins(threads <= default_thread_count() ? kSpins : 0), shares(threads) {
    // Only a pool that has every core for itself binds its threads; with fewer, a thread must be able to move away from a
    // core that another program uses. The caller's thread is not the pool's to bind: it runs on the core that is left.
    const std::vector<std::vector<int>>& cores = usable_cores();
    const bool bind = spins > 0 && static_cast<size_t>(threads) == cores.size();
    workers.reserve(threads - 1);
    try {
      for (int t = 1; t < threads; ++t)
        workers.emplace_back([this, t, bind, &cores] {
          if (bind) bind_thread(cores[static_cast<size_t>(t)]);
          work(t);
        });
    } catch (const std::system_error&) {
      threads = static_cast<int>(workers.size()) + 1;  // no worker reads it before the first loop
    }
  }

  ~Impl() { stop(); }

  void stop() {
    stopping.store(true, std::memory_order_relaxed);
    generation.fetch_add(1, std::memory_order_release);
    generation.notify_all();
    for (std::thread& w : workers) w.join();
  }

  // Waits until `value` differs from `old`: first spinning, then asleep.
  uint32_t wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) const {
    for (int i = 0; i < spins; ++i) {
      const uint32_t now = value.load(std::memory_order_acquire);
      if (now != old) return now;
      cpu_relax();
    }
    value.wait(old, std::memory_order_acquire);
    return value.load(std::memory_order_acquire);
  }

  // First unit of a share's piece `piece`: borders depend on the loop and the thread count only.
  int64_t border(int share, uint32_t pieces, uint32_t piece) const {
    const int64_t begin = units * share / threads, size = units * (share + 1) / threads - begin;
    return begin + size - (piece < pieces ? size >> piece : 0);
  }

  // As many as have a unit each.
  uint32_t pieces_of(int share) const {
    const int64_t size = units * (share + 1) / threads - units * share / threads;
    return static_cast<uint32_t>(
        std::min(static_cast<int>(std::bit_width(static_cast<uint64_t>(size))), kPiecesPerShare));
  }

  void run_share(int share, int thread) {
    for (int64_t piece; (piece = shares[share].claim()) >= 0;) {
      const uint32_t pieces = pieces_of(share), p = static_cast<uint32_t>(piece);
      const int64_t begin = border(share, pieces, p) * grain;
      const int64_t end = std::min(count, border(share, pieces, p + 1) * grain);
      try {
        call(body, begin, end, thread);
      } catch (...) {
        const std::lock_guard lock(failure_mutex);
        if (!failure) failure = std::current_exception();
      }
      if (remaining.fetch_sub(1, std::memory_order_acq_rel) == 1) remaining.notify_one();
    }
  }

  void run_pieces(int thread) {
    for (int i = 0; i < threads; ++i) run_share((thread + i) % threads, thread);
  }

  using Clock = std::chrono::steady_clock;

  // Waits until all pieces are done, and judges how long that took.
  void wait_for_others(Clock::time_point start) {
    uint32_t left = remaining.load(std::memory_order_acquire);
    if (left == 0) return note_loop(false);
    const Clock::time_point idle = Clock::now();
    for (; left != 0; left = remaining.load(std::memory_order_acquire)) wait_for_change(remaining, left);
    const auto waited = Clock::now() - idle;
    note_loop(waited > kStall && waited > kStallOfWork * (idle - start));
  }

  void note_loop(bool stalled) {
    if (!stalled) {
      if (++since_stall > kMostAlone) alone = 0;
      return;
    }
    if (since_stall < kLoopsApart) alone_left = alone = std::clamp(2 * alone, kFirstAlone, kMostAlone);
    since_stall = 0;
  }

  void work(int thread) {
    uint32_t seen = 0;
    while (true) {
      seen = wait_for_change(generation, seen);
      if (stopping.load(std::memory_order_relaxed)) return;
      run_pieces(thread);
    }
  }

  int threads;
  const int spins;
  // The loop that runs now. Written by the caller before the shares are reset; read only by holders of a piece.
  const void* body = nullptr;
  Call call = nullptr;
  int64_t count = 0, grain = 1, units = 0;
  // Of the caller: loops since one stalled, loops that still run alone, and how many did the last time.
  int since_stall = kLoopsApart, alone_left = 0, alone = 0;

  std::mutex failure_mutex;
  std::exception_ptr failure;  // the first of the loop

  std::vector<Share> shares;
  alignas(64) std::atomic<uint32_t> generation{0};  // rises with each loop
  alignas(64) std::atomic<uint32_t> remaining{0};   // pieces not yet done
  std::atomic<bool> stopping{false};
  std::vector<std::thread> workers;
};

ThreadPool::ThreadPool(int threads) : impl_(std::make_unique<Impl>(threads)) {}
ThreadPool::~ThreadPool() = default;

Status check_threads(const ThreadPool& pool, int asked) {
  if (asked <= pool.threads()) return {};
  return resource_exhausted(std::to_string(asked) + " threads were asked for, the system gives this process " +
                            std::to_string(pool.threads()) +
                            "; ask for fewer, or raise its limits (ulimit -u, ulimit -v)");
}

int ThreadPool::threads() const {
  return impl_->threads;
}

void ThreadPool::run(int64_t count, int64_t grain, const void* body, Call call) {
  if (count <= 0) return;
  Impl& p = *impl_;
  p.body = body;
  p.call = call;
  p.count = count;
  p.grain = std::max<int64_t>(1, grain);
  p.units = (count - 1) / p.grain + 1;
  const bool alone = p.alone_left > 0;
  if (alone) --p.alone_left;
  if (p.threads == 1 || p.units == 1 || alone) {
    call(body, 0, count, 0);
    return;
  }
  const Impl::Clock::time_point start = Impl::Clock::now();
  uint32_t pieces = 0;
  for (int t = 0; t < p.threads; ++t) pieces += p.pieces_of(t);
  p.remaining.store(pieces, std::memory_order_relaxed);
  for (int t = 0; t < p.threads; ++t) p.shares[t].reset(p.pieces_of(t));
  p.generation.fetch_add(1, std::memory_order_release);
  p.generation.notify_all();

  p.run_pieces(0);
  p.wait_for_others(start);
  if (p.failure) std::rethrow_exception(std::exchange(p.failure, nullptr));
}

}  // namespace halfbyte
