// Attention and the key-value cache, by the contract (docs/numerics.md 5). Signatures: AttentionKernels and KvStoreFn in
// kernels/api.h.
#pragma once

#include "kernels/api.h"

namespace halfbyte::ref {

void attention_rows(const KvView& kv, const AttentionRows& rows, float* scratch);
void attention_cut(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial);
// In the tile order where `amx` has it (docs/numerics.md 5.1). No kernel set runs it; tests hold `amx` to it.
void attention_rows_in_tiles(const KvView& kv, const AttentionRows& rows, float* scratch);
void attention_cut_in_tiles(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial);
void attention_merge(float* partials, int64_t cuts, int64_t group, int64_t head_dim, float* out);

void store_kv(const KvLayout& layout, int64_t slot, const float* key, float key_scale, const float* value,
              float value_scale, std::byte* key_part, std::byte* value_part);

// Element d of the key or value at `slot` of a part.
float read_key(const KvLayout& layout, const std::byte* part, int64_t slot, int64_t d, float scale);
float read_value(const KvLayout& layout, const std::byte* part, int64_t slot, int64_t d, float scale);

}  // namespace halfbyte::ref
