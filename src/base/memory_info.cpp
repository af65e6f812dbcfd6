#include "base/memory_info.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>

#include "base/cgroup.h"

namespace halfbyte {
namespace {

std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;  // "max" (no limit) does not parse
  return std::nullopt;
}

std::optional<uint64_t> meminfo_available(const std::string& path) {
  std::ifstream file(path);
  std::string key, unit;
  uint64_t kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

// Page cache that the kernel drops before it refuses memory. Version 1 counts that of groups further in apart.
uint64_t page_cache(const CgroupFolder& folder) {
  std::ifstream file(folder.path + "/memory.stat");
  const std::string prefix = folder.v2 ? "" : "total_";
  std::string key;
  uint64_t value = 0, cache = 0;
  while (file >> key >> value)
    if (key == prefix + "inactive_file" || key == prefix + "active_file") cache += value;
  return cache;
}

uint64_t left_of_limit(const CgroupFolder& folder) {
  const auto limit = read_number(folder.path + (folder.v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = read_number(folder.path + (folder.v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return UINT64_MAX;
  const uint64_t held = *used - std::min(*used, page_cache(folder));
  return *limit - std::min(*limit, held);
}

// What is left of the limit on this process's address space (ulimit -v).
uint64_t address_space_left() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  std::ifstream file("/proc/self/statm");
  uint64_t pages = 0;
  file >> pages;
  const uint64_t used = pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return limit.rlim_cur - std::min<uint64_t>(limit.rlim_cur, used);
}

}  // namespace

uint64_t available_memory_bytes() {
  return std::min(available_memory_bytes("/sys", "/proc"), address_space_left());
}

uint64_t available_memory_bytes(const std::string& sys, const std::string& proc) {
  uint64_t left = meminfo_available(proc + "/meminfo").value_or(UINT64_MAX);
  for (const CgroupFolder& folder : cgroup_folders("memory", sys, proc)) left = std::min(left, left_of_limit(folder));
  return left;
}

}  // namespace halfbyte
