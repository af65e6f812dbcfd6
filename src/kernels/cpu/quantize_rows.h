// Activations in the integer form of fp4_layout.h, from FP32 rows (docs/numerics.md 2 and 3.2). The AVX2 code serves
// the linears of AVX-VNNI, AVX-512 and AMX too: all read the same form.
#pragma once

#include <cstddef>
#include <cstdint>

namespace halfbyte::cpu {

size_t nvfp4_a16_bytes(int64_t k);
size_t nvfp4_a8_bytes(int64_t k);
size_t nvfp4_a4_bytes(int64_t k);
size_t mxfp4_a16_bytes(int64_t k);
size_t mxfp4_a8_bytes(int64_t k);
size_t mxfp4_a4_bytes(int64_t k);

// Signatures of LinearKernel::quantize.
void quantize_nvfp4_a16_avx2(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_nvfp4_a8_avx2(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_nvfp4_a4_avx2(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_mxfp4_a16_avx2(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_mxfp4_a8_avx2(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);
void quantize_mxfp4_a4_avx2(const float* x, int64_t rows, int64_t k, float alpha, std::byte* out);

}  // namespace halfbyte::cpu
