// Packing of FP4 weights into the tiles of fp4_layout.h; plain C++, for every instruction set.
#pragma once

#include "tensor/quant_linear.h"

namespace halfbyte::cpu {

size_t nvfp4_packed_bytes(int64_t n, int64_t k);
size_t mxfp4_packed_bytes(int64_t n, int64_t k);
void pack_nvfp4(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed);
void pack_mxfp4(const QuantLinear& w, int64_t n_begin, int64_t n_end, std::byte* packed);

}  // namespace halfbyte::cpu
