// The system calls that code in a sandbox may make.
#pragma once

#include <cstddef>
#include <vector>

struct sock_filter;

namespace halfbyte {

// A program for this machine's seccomp: what seccomp_filter.cpp names is allowed, every other call fails: with EPERM, or with
// ENOSYS where it is so young that libraries expect it to be missing (docs/decisions/2026-11-30-code-sandbox.md). Threads can
// be made, processes cannot. Calls of another architecture end the process. Empty where this architecture has none. The
// process that installs it writes its own id into the instruction own_process_at() first.
std::vector<sock_filter> seccomp_filter();

// The index of the instruction that compares with the process's own id (tgkill is for itself alone).
size_t own_process_at(const std::vector<sock_filter>& filter);

}  // namespace halfbyte
