// Reference attention of one query row (docs/numerics.md 5); see kernels/api.h.
#pragma once

#include "kernels/api.h"

namespace halfbyte::ref {

void attention(const float* q, const KvView& kv, int64_t kv_head, int64_t group, int64_t position, float scale,
               float* scratch, float* out);

}  // namespace halfbyte::ref
