// KvStoreFn on AVX2 (kernels/api.h); AVX-512 machines use it too.
#pragma once

#include "kernels/api.h"

namespace halfbyte::cpu {

void store_kv_avx2(const KvLayout& layout, int64_t slot, const float* key, float key_scale, const float* value,
                   float value_scale, std::byte* key_part, std::byte* value_part);

}  // namespace halfbyte::cpu
