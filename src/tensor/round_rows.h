// Rounding of weight rows at load, at the speed of memory. The arithmetic is that of formats/, bit for bit; the forms
// differ in the instruction set only. Private to src/tensor: use quantize_weight (tensor/quantize_tensor.h).
#pragma once

#include <cstdint>
#include <span>

#include "formats/mxfp4.h"

namespace halfbyte {

// Every x is finite: callers look at widest() first.
struct RowRounders {
  const char* name;  // "baseline", "avx2"
  // The largest magnitude of n values; NaN or infinity when there is one.
  float (*widest)(const float* x, int64_t n);
  // A row of k elements -> NVFP4::code_bytes(k) and scale_bytes(k) bytes, as NVFP4::quantize_weight_row.
  void (*nvfp4_weight)(const float* x, int64_t k, float alpha, uint8_t* codes, uint8_t* scales);
  // As MXFP4::quantize_row.
  void (*mxfp4)(const float* x, int64_t k, Mxfp4Rule rule, uint8_t* codes, uint8_t* scales);
  // As E4M3::encode(x / scale).
  void (*fp8)(const float* x, int64_t k, float scale, uint8_t* codes);
  // As BF16::encode.
  void (*bf16)(const float* x, int64_t n, uint16_t* out);
};

extern const RowRounders kRowRoundersBaseline;
#if defined(__x86_64__)
extern const RowRounders kRowRoundersAvx2;
#endif

// The forms that this CPU runs, the fastest last.
std::span<const RowRounders* const> row_rounders_here();

}  // namespace halfbyte
