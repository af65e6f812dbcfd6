// GGUF's block types to FP32. Private to src/io: use dequantize_row (io/dequantize.h).
//
// A block packs 32, 64 or 256 consecutive elements of a row. d and m are F16; q are unsigned integers of the named width.
// Every product below is exact in FP32; a difference or a sum rounds once, so each value is the one the format defines.
//
//   Q4_0    32: d, 4-bit q (element i in the low nibble of byte i, i + 16 in the high one)       d (q - 8)
//   Q4_1    32: d, m, q as Q4_0                                                                  d q + m
//   Q5_0    32: d, 32 high bits, 4 low bits as Q4_0                                              d (q - 16)
//   Q5_1    32: d, m, likewise                                                                   d q + m
//   Q8_0    32: d, int8 q                                                                        d q
//   Q2_K   256: 16 x (4-bit s, 4-bit t), 2-bit q, d, m; a scale pair every 16 elements           (d s) q - (m t)
//   Q3_K   256: 256 high bits, 2 low bits, 16 6-bit s, d; a scale every 16                       (d (s - 32)) (q - 4)
//   Q4_K   256: d, m, 8 x (6-bit s, 6-bit t), 4-bit q; a scale pair every 32                     (d s) q - (m t)
//   Q5_K   256: d, m, likewise, 256 high bits, 4 low bits                                        (d s) q - (m t)
//   Q6_K   256: 4 low bits, 2 high bits, 16 int8 s, d; a scale every 16                          (d s) (q - 32)
//   IQ4_NL  32: d, 4-bit index as Q4_0 into a fixed table                                        d table[q]
//   IQ4_XS 256: d, 8 6-bit s, index; a scale every 32                                            (d (s - 32)) table[q]
//   MXFP4   32: E8M0 s, E2M1 codes as Q4_0                                                       e2m1 2^(s - 127)
//   NVFP4   64: 4 E4M3 s, then 4 runs of 8 bytes: element i of 16 low, i + 8 high                e2m1 s
//
// MXFP4 and NVFP4: a NaN scale (255; 0x7F, 0xFF) gives NaN, which loading refuses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/dtype.h"

namespace halfbyte {

// Decodes `blocks` blocks of one type. in: unaligned.
using DecodeBlocksFn = void (*)(const std::byte* in, size_t blocks, float* out);

// The largest magnitude among the values of `blocks` blocks, without their values: within a scale the extremes are those of
// the smallest and the largest q. Not finite where a value is not.
using LargestOfBlocksFn = float (*)(const std::byte* in, size_t blocks);

// gguf_blocks.cpp is compiled once an instruction set; a form is one of these tables.
struct BlockDecoders {
  const char* name;                          // "baseline", "avx2"
  DecodeBlocksFn (*decoder)(DType type);     // F16, BF16 (blocks of one) and the types above; else null
  LargestOfBlocksFn (*largest)(DType type);  // Q4_0, Q8_0, Q4_K and Q6_K, the common ones of large models; else null
};

// The forms that this CPU runs, the fastest last.
std::span<const BlockDecoders* const> block_decoders_here();

}  // namespace halfbyte
