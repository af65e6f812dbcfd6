// How much memory this process can still take.
#pragma once

#include <cstdint>
#include <string>

namespace halfbyte {

// The kernel's estimate of memory that can be used without swapping, what is left of a control group's limit (v2 or v1;
// page cache counts as free), or what is left of the process's own (ulimit -v), whichever is least. Nothing known:
// UINT64_MAX.
uint64_t available_memory_bytes();

// The same on a made-up machine, without the process's own limit: `sys` stands for /sys, `proc` for /proc.
uint64_t available_memory_bytes(const std::string& sys, const std::string& proc);

}  // namespace halfbyte
