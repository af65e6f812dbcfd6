// Attention of each x86 instruction set; see AttentionKernels in kernels/api.h.
#pragma once

#include "kernels/api.h"

namespace halfbyte::cpu {

void attention_rows_avx2(const KvView& kv, const AttentionRows& rows, float* scratch);
void attention_cut_avx2(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial);
void attention_merge_avx2(float* partials, int64_t cuts, int64_t group, int64_t head_dim, float* out);

void attention_rows_avx512(const KvView& kv, const AttentionRows& rows, float* scratch);
void attention_cut_avx512(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial);
void attention_merge_avx512(float* partials, int64_t cuts, int64_t group, int64_t head_dim, float* out);

// Prompt rows over a BF16 cache, in the tile order (docs/numerics.md 5.1); over others, as AVX-512.
inline constexpr int64_t kAmxQueryRows = 192;
void attention_rows_amx(const KvView& kv, const AttentionRows& rows, float* scratch);
void attention_cut_amx(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial);

}  // namespace halfbyte::cpu
