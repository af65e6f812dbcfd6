// How much memory this process can still take.
#pragma once

#include <cstdint>

namespace halfbyte {

// The kernel's estimate of memory that can be used without swapping, or what is left of the control group's limit,
// whichever is less. Nothing known: UINT64_MAX.
uint64_t available_memory_bytes();

}  // namespace halfbyte
