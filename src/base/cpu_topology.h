// Which CPUs this process may use, and how many threads are worth starting on them.
#pragma once

#include <string>
#include <vector>

namespace halfbyte {

// The CPUs of each physical core among `allowed`, cores in the order of their first CPU. `sys` stands for /sys; a CPU whose
// core is not known is one of its own.
std::vector<std::vector<int>> physical_cores(const std::vector<int>& allowed, const std::string& sys);

// The same of this process's affinity mask when it was first asked for.
const std::vector<std::vector<int>>& usable_cores();

// Binds the calling thread to these CPUs. False when the system refuses, and nothing has changed.
bool bind_thread(const std::vector<int>& cpus);

// Physical cores that this process may use: those in the affinity mask, not more than the control group's CPU quota (a
// fraction is rounded down, since a thread that is throttled stalls the others); at least 1.
int default_thread_count();

// The same on a made-up machine: `allowed` are the CPUs of the affinity mask, `sys` stands for /sys, `proc` for /proc.
// Files that are missing or make no sense limit nothing.
int thread_count_for(const std::vector<int>& allowed, const std::string& sys, const std::string& proc);

}  // namespace halfbyte
