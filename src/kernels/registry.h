// Which implementation of an operation runs on this machine. Prints itself; can be forced; never substitutes silently.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "kernels/api.h"

namespace halfbyte {

// Every linear kernel that was compiled in, whether this CPU runs it or not.
std::span<const LinearKernel> all_linear_kernels();

// True when this CPU has what the instruction set needs.
bool isa_runs_here(Isa isa);

// "ref", "avx2", "avx512", or "" for the best that runs here. An error lists the known names, or says which CPU
// features are missing. HALFBYTE_KERNELS is read by the tools, not here.
Result<Isa> choose_isa(std::string_view forced);

// The kernel for a format and mode: of `isa`, or of the next lower set that has one (a forced set that has none falls to
// ref; name() says so). Never null for a combination that docs/formats.md lists.
Result<const LinearKernel*> find_linear_kernel(WeightFormat weights, ActivationMode activations, Isa isa);
const VectorKernels& vector_kernels(Isa isa);

// A table of everything for `halfbyte inspect --kernels`.
std::string registry_text();

}  // namespace halfbyte
