#pragma once

#include <functional>
#include <vector>

namespace halfbyte::fake_cuda {

using Operations = std::vector<std::function<void()>>;
// Done at once, or kept for the graph that is being captured.
void put(std::function<void()> operation);
// A copy to or from device memory: a fault where nobody has it.
void touch(const void* at, size_t bytes);

}  // namespace halfbyte::fake_cuda
