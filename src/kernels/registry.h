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

// In rising order of preference.
std::span<const Isa> all_isas();

// True when this CPU has what the instruction set needs.
bool isa_runs_here(Isa isa);

// "ref", "avx2", "avxvnni", "avx512", "amx", or "" for the best that runs here. An error lists the known names, or says
// which CPU features are missing. HALFBYTE_KERNELS is read by the tools, not here.
Result<Isa> choose_isa(std::string_view forced);

// The kernel for a format, mode and role: of `isa`, or of the next lower set in it that has one (its name says which).
// The two roles' kernels of one format, mode and isa read the same packed weights. kUnsupported for a combination that
// does not exist: F32, BF16 and FP8 weights take kF32 and kA16, NVFP4 and MXFP4 all four modes.
Result<const LinearKernel*> find_linear_kernel(WeightFormat weights, ActivationMode activations, Isa isa,
                                               RowRole role = RowRole::kDecode);
// By name, for tests and benches: null when there is none.
const LinearKernel* find_linear_kernel_named(std::string_view name);
const VectorKernels& vector_kernels(Isa isa);

// A table of everything for `halfbyte inspect --kernels`.
std::string registry_text();

}  // namespace halfbyte
