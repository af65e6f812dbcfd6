// The kernels of src/kernels/cpu for AVX-VNNI, AVX-512 and AMX, compiled against the intrinsics of immintrin.h beside
// this file.
#pragma once

#include <vector>

#include "kernels/api.h"

namespace halfbyte::testing {

// Needs AVX2. Empty on other machines than x86-64.
const std::vector<LinearKernel>& emulated_linear_kernels();

// vector_kernels(isa) of kAvx512 or kAmx. Needs AVX2; on other machines than x86-64 the reference.
const VectorKernels& emulated_vector_kernels(Isa isa);

}  // namespace halfbyte::testing
