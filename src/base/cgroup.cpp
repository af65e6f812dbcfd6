#include "base/cgroup.h"

#include <fstream>
#include <sstream>

namespace halfbyte {
namespace {

// `group` ("/a/b") and its parents under `mount`, the mount itself last.
void add_group(const std::string& mount, std::string group, bool v2, std::vector<CgroupFolder>& out) {
  while (!group.empty() && group.front() == '/') {
    out.push_back({mount + group, v2});
    group.resize(group.rfind('/'));
  }
  out.push_back({mount, v2});
}

bool lists(const std::string& controllers, std::string_view wanted) {
  std::istringstream in(controllers);
  for (std::string name; std::getline(in, name, ',');) {
    if (name == wanted) return true;
  }
  return false;
}

}  // namespace

std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::string& sys, const std::string& proc) {
  const std::string mount = sys + "/fs/cgroup";
  std::vector<CgroupFolder> out;
  // "0::/group" for v2, "4:cpu,cpuacct:/group" for v1.
  std::ifstream in(proc + "/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1), group = line.substr(second + 1);
    if (controllers.empty()) {
      add_group(mount, group, /*v2=*/true, out);
    } else if (lists(controllers, controller)) {
      add_group(mount + "/" + controllers, group, /*v2=*/false, out);
      if (controllers != controller) add_group(mount + "/" + std::string(controller), group, /*v2=*/false, out);
    }
  }
  return out;
}

}  // namespace halfbyte
