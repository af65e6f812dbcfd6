#include "base/cpu_topology.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "base/cgroup.h"

namespace halfbyte {
namespace {

std::vector<int> affinity_cpus() {
  std::vector<int> cpus;
  // The kernel may have more CPUs than cpu_set_t holds; then the call fails and a larger set is needed.
  for (int capacity = 1024; capacity <= 1 << 17; capacity *= 2) {
    cpu_set_t* set = CPU_ALLOC(capacity);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(capacity);
    const bool ok = sched_getaffinity(0, bytes, set) == 0;
    if (ok) {
      for (int c = 0; c < capacity; ++c) {
        if (CPU_ISSET_S(c, bytes, set)) cpus.push_back(c);
      }
    }
    CPU_FREE(set);
    if (ok) break;
  }
  return cpus;
}

std::string first_line(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// Quota over period in CPUs, or infinity.
double cpus_of(double quota, double period) {
  return quota > 0 && period > 0 ? quota / period : std::numeric_limits<double>::infinity();
}

// cpu.max holds "max 100000" or "150000 100000".
double quota_v2(const std::string& folder) {
  std::istringstream in(first_line(folder + "/cpu.max"));
  double quota = 0, period = 0;
  in >> quota >> period;
  return in ? cpus_of(quota, period) : cpus_of(0, 0);
}

double quota_v1(const std::string& folder) {
  std::istringstream quota_in(first_line(folder + "/cpu.cfs_quota_us"));
  std::istringstream period_in(first_line(folder + "/cpu.cfs_period_us"));
  double quota = 0, period = 0;
  quota_in >> quota;
  period_in >> period;
  return quota_in && period_in ? cpus_of(quota, period) : cpus_of(0, 0);
}

double cgroup_cpus(const std::string& sys, const std::string& proc) {
  double cpus = std::numeric_limits<double>::infinity();
  for (const CgroupFolder& folder : cgroup_folders("cpu", sys, proc))
    cpus = std::min(cpus, folder.v2 ? quota_v2(folder.path) : quota_v1(folder.path));
  return cpus;
}

}  // namespace

// Siblings share one list ("0,64" or "0-1"), so distinct lists are distinct cores.
std::vector<std::vector<int>> physical_cores(const std::vector<int>& allowed, const std::string& sys) {
  std::vector<std::vector<int>> cores;
  std::map<std::string, size_t> core_of;
  for (int c : allowed) {
    std::string list =
        first_line(sys + "/devices/system/cpu/cpu" + std::to_string(c) + "/topology/thread_siblings_list");
    if (list.empty()) list = "cpu" + std::to_string(c);
    const auto [at, is_new] = core_of.emplace(std::move(list), cores.size());
    if (is_new) cores.emplace_back();
    cores[at->second].push_back(c);
  }
  return cores;
}

const std::vector<std::vector<int>>& usable_cores() {
  static const std::vector<std::vector<int>> cores = physical_cores(affinity_cpus(), "/sys");
  return cores;
}

bool bind_thread(const std::vector<int>& cpus) {
  if (cpus.empty()) return false;
  const int capacity = *std::max_element(cpus.begin(), cpus.end()) + 1;
  cpu_set_t* set = CPU_ALLOC(capacity);
  if (set == nullptr) return false;
  const size_t bytes = CPU_ALLOC_SIZE(capacity);
  CPU_ZERO_S(bytes, set);
  for (int c : cpus) CPU_SET_S(c, bytes, set);
  const bool ok = sched_setaffinity(0, bytes, set) == 0;
  CPU_FREE(set);
  return ok;
}

int thread_count_for(const std::vector<int>& allowed, const std::string& sys, const std::string& proc) {
  const int cores = std::max(1, static_cast<int>(physical_cores(allowed, sys).size()));
  const double quota = cgroup_cpus(sys, proc);
  return quota < cores ? std::max(1, static_cast<int>(quota)) : cores;
}

int default_thread_count() {
  return thread_count_for(affinity_cpus(), "/sys", "/proc");
}

}  // namespace halfbyte
