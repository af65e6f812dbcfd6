// Prints two CPUs that share no execution units: CPU 0 (or the first allowed one) and the first other on which a loop of
// vector arithmetic runs beside the same loop on the first as fast as anywhere. Virtual machines do not say which of their
// CPUs are two threads of one core, and two threads of one core do arithmetic at half the speed.
//
//   g++ -O2 -mavx2 -mfma -o pick_cores pick_cores.cpp -lpthread && ./pick_cores      -> 0,2
#include <immintrin.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>

namespace {

// Twelve sums: enough to keep two units of four cycles busy.
double work() {
  const auto start = std::chrono::steady_clock::now();
  __m256 sums[12];
  for (__m256& s : sums) s = _mm256_set1_ps(1.0f);
  for (int i = 0; i < 200000; ++i) {
#pragma GCC unroll 12
    for (__m256& s : sums) {
      s = _mm256_fmadd_ps(s, _mm256_set1_ps(0.999f), _mm256_set1_ps(0.001f));
      asm volatile("" : "+x"(s));
    }
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The slower side's median of five.
double beside(int a, int b) {
  std::atomic<int> ready{0}, done{0};
  double seconds[2];
  const auto run = [&](int side, int cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
    work();
    for (++ready; ready < 2;) continue;
    double times[5];
    for (double& t : times) t = work();
    std::sort(times, times + 5);
    seconds[side] = times[2];
    for (++done; done < 2;) work();
  };
  std::thread first(run, 0, a), second(run, 1, b);
  first.join();
  second.join();
  return std::max(seconds[0], seconds[1]);
}

}  // namespace

int main() {
  cpu_set_t allowed;
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::vector<int> cpus;
  for (int c = 0; c < CPU_SETSIZE && cpus.size() < 16; ++c)
    if (CPU_ISSET(c, &allowed)) cpus.push_back(c);
  if (cpus.size() < 2) return 1;
  std::vector<double> times;
  for (size_t i = 1; i < cpus.size(); ++i) {
    times.push_back(beside(cpus[0], cpus[i]));
    std::fprintf(stderr, "%d and %d: %.2f ms\n", cpus[0], cpus[i], 1e3 * times.back());
  }
  const double best = *std::min_element(times.begin(), times.end());
  for (size_t i = 0; i < times.size(); ++i) {
    if (times[i] > 1.1 * best) continue;
    std::printf("%d,%d\n", cpus[0], cpus[i + 1]);
    return 0;
  }
}
