// Attention of one query row; see AttentionFn in kernels/api.h.
#pragma once

#include "kernels/api.h"

namespace halfbyte::cpu {

void attention_avx2(const float* q, const KvView& kv, int64_t kv_head, int64_t group, int64_t position, float scale,
                    float* scratch, float* out);

}  // namespace halfbyte::cpu
