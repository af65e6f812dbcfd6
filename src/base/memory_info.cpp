#include "base/memory_info.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

namespace halfbyte {
namespace {

std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;  // "max" (no limit) does not parse
  return std::nullopt;
}

std::optional<uint64_t> meminfo_available() {
  std::ifstream file("/proc/meminfo");
  std::string key, unit;
  uint64_t kib = 0;
  while (file >> key >> kib) {
    std::getline(file, unit);
    if (key == "MemAvailable:") return kib * 1024;
  }
  return std::nullopt;
}

// "file 123" in memory.stat: page cache that the kernel drops before it refuses memory.
uint64_t cgroup_page_cache(const std::string& folder) {
  std::ifstream file(folder + "/memory.stat");
  std::string key;
  uint64_t value = 0, cache = 0;
  while (file >> key >> value)
    if (key == "inactive_file" || key == "active_file") cache += value;
  return cache;
}

// Control group v2: the tightest limit on the way from this process's group to the root.
uint64_t cgroup_left() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  uint64_t left = UINT64_MAX;
  while (std::getline(file, line)) {
    if (!line.starts_with("0::")) continue;
    std::string group = line.substr(3);
    while (true) {
      const std::string folder = "/sys/fs/cgroup" + group;
      const auto limit = read_number(folder + "/memory.max");
      const auto used = read_number(folder + "/memory.current");
      if (limit && used) {
        const uint64_t held = *used - std::min(*used, cgroup_page_cache(folder));
        left = std::min(left, *limit - std::min(*limit, held));
      }
      const size_t slash = group.rfind('/');
      if (slash == std::string::npos || group.empty()) break;
      group.resize(slash);
    }
  }
  return left;
}

}  // namespace

uint64_t available_memory_bytes() {
  return std::min(meminfo_available().value_or(UINT64_MAX), cgroup_left());
}

}  // namespace halfbyte
