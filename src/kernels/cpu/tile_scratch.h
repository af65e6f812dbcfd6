// Scratch memory of the calling thread for the linears of instruction sets: allocated at first use or when a larger one
// is asked for, kept until the thread ends. Lives in a file of its own, because files compiled for one instruction set
// may not define what the linker could keep for all machines.
#pragma once

#include <cstddef>

namespace halfbyte::cpu {

// At least `bytes` bytes, 64-byte aligned, on large pages where the system has them; contents are what the last user
// left.
std::byte* tile_scratch(size_t bytes);
// The same, another piece of memory: for one activation row in another form.
std::byte* row_scratch(size_t bytes);

}  // namespace halfbyte::cpu
