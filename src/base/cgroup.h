// The control groups of this process: where limits on its CPUs and memory stand.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace halfbyte {

struct CgroupFolder {
  std::string path;
  bool v2 = true;  // else a hierarchy of version 1, whose files have other names
};

// The folders that may limit `controller` ("cpu", "memory") for this process: its group and the parents of it, innermost
// first. In a container the mount often is the group's own root, so folders that do not exist are to be expected. `sys`
// stands for /sys, `proc` for /proc.
std::vector<CgroupFolder> cgroup_folders(std::string_view controller, const std::string& sys, const std::string& proc);

}  // namespace halfbyte
