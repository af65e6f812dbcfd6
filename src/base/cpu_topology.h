// Which CPUs this process may use, and how many threads are worth starting on them.
#pragma once

#include <string>
#include <vector>

namespace halfbyte {

// CPUs in this process's affinity mask; at least 1.
int usable_cpus();

// What default_thread_count() (thread_pool.h) reckons with, apart from it so that tests can give it a made-up machine:
// `allowed` are the CPUs of the affinity mask, `sys` stands for /sys, `proc` for /proc.
//
// The result is the number of physical cores among `allowed`, not more than the cgroup's CPU quota (v2 and v1; the
// tightest of the group and its parents; a fraction is rounded down, since a thread that is throttled stalls the
// others), at least 1. Files that are missing or make no sense limit nothing.
int thread_count_for(const std::vector<int>& allowed, const std::string& sys, const std::string& proc);

}  // namespace halfbyte
