// Keys and values into the cache on AVX2, bit-equal to ref/kv_store.cpp. A row is encoded in the order of its channels; a
// value's row is copied, a key's channel pairs are scattered.
#include <cstring>

#include "kernels/attention_layout.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/cpu/kv_store.h"
#include "kernels/cpu/to_bf16_avx2.h"
#include "kernels/ref/attention.h"
#include "tensor/encode_e4m3_avx2.h"

namespace halfbyte::cpu {
namespace {

// Rows longer than this are the reference's: no model has them.
constexpr int64_t kMaxHeadDim = 512;

HB_ALWAYS_INLINE __m256i magnitude_bits_of(__m256 x) {
  return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF));
}

// sign << 3 | index where the index is not 0.
HB_ALWAYS_INLINE __m256i with_sign(__m256i index, __m256 x) {
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(x), 28), _mm256_set1_epi32(8));
  return _mm256_or_si256(index, _mm256_and_si256(sign, _mm256_cmpgt_epi32(index, _mm256_setzero_si256())));
}

// Of numbers, not NaN; E2M1::encode and E1M2::encode.
HB_ALWAYS_INLINE __m256i encode_e2m1(__m256 x) {
  const __m256 size = _mm256_castsi256_ps(magnitude_bits_of(x));
  __m256i index = _mm256_setzero_si256();
  const auto above = [&](float border) HB_INLINE_LAMBDA {
    index = _mm256_sub_epi32(index, _mm256_castps_si256(_mm256_cmp_ps(size, _mm256_set1_ps(border), _CMP_GT_OQ)));
  };
  const auto from = [&](float border) HB_INLINE_LAMBDA {
    index = _mm256_sub_epi32(index, _mm256_castps_si256(_mm256_cmp_ps(size, _mm256_set1_ps(border), _CMP_GE_OQ)));
  };
  above(0.25f);
  from(0.75f);
  above(1.25f);
  from(1.75f);
  above(2.5f);
  from(3.5f);
  above(5.0f);
  return with_sign(index, x);
}
HB_ALWAYS_INLINE __m256i encode_e1m2(__m256 x) {
  const __m256 size = _mm256_min_ps(_mm256_castsi256_ps(magnitude_bits_of(x)), _mm256_set1_ps(3.5f));
  return with_sign(_mm256_cvtps_epi32(_mm256_add_ps(size, size)), x);
}

// The low bytes of 16 lanes.
HB_ALWAYS_INLINE __m128i to_bytes(__m256i low, __m256i high) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xD8);
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}

HB_ALWAYS_INLINE void store128(void* p, __m128i v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), v);
}

void encode_bf16(const float* x, int64_t n, std::byte* out) {
  for (int64_t d = 0; d < n; d += 16) {
    const auto codes = [&](int64_t at) HB_INLINE_LAMBDA {
      return _mm256_srli_epi32(_mm256_castps_si256(round_to_bf16(_mm256_loadu_ps(x + at))), 16);
    };
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(codes(d), codes(d + 8)), 0xD8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 2 * d), packed);
  }
}

void encode_fp8(const float* x, int64_t n, float scale, std::byte* out) {
  const __m256 step = _mm256_set1_ps(scale);
  for (int64_t d = 0; d < n; d += 16)
    store128(out + d, to_bytes(encode_e4m3(_mm256_div_ps(_mm256_loadu_ps(x + d), step)),
                               encode_e4m3(_mm256_div_ps(_mm256_loadu_ps(x + d + 8), step))));
}

// amax of 16 values as bits, by which a NaN is largest.
HB_ALWAYS_INLINE float block_amax(const float* x) {
  const __m256i m = _mm256_max_epu32(magnitude_bits_of(_mm256_loadu_ps(x)), magnitude_bits_of(_mm256_loadu_ps(x + 8)));
  __m128i v = _mm_max_epu32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  v = _mm_max_epu32(v, _mm_shuffle_epi32(v, 0x4E));
  v = _mm_max_epu32(v, _mm_shuffle_epi32(v, 0xB1));
  return _mm_cvtss_f32(_mm_castsi128_ps(v));
}

// n / 2 bytes of codes and n / 16 scales.
template <bool kE2m1>
void encode_blocks(const float* x, int64_t n, float alpha, std::byte* out, uint8_t* scales) {
  const float range = (kE2m1 ? 6.0f : 3.5f) * alpha;
  for (int64_t d = 0; d < n; d += 16) {
    const float amax = block_amax(x + d);
    const __m256i code = encode_e4m3(_mm256_div_ps(_mm256_set1_ps(amax), _mm256_set1_ps(range)));
    const bool finite = amax < __builtin_inff();  // false for NaN
    const auto scale = finite ? static_cast<uint8_t>(_mm256_extract_epi32(code, 0)) : uint8_t{0x7F};
    scales[d / 16] = scale;
    const float step = 2.0f * kHalfE4M3.of[scale] * alpha;
    if (!(step > 0.0f)) {
      std::memset(out + d / 2, 0, 8);
      continue;
    }
    const auto codes = [&](const float* at) HB_INLINE_LAMBDA {
      const __m256 scaled = _mm256_div_ps(_mm256_loadu_ps(at), _mm256_set1_ps(step));
      return kE2m1 ? encode_e2m1(scaled) : encode_e1m2(scaled);
    };
    // Even code + 16 * odd code.
    const __m128i pairs = _mm_maddubs_epi16(to_bytes(codes(x + d), codes(x + d + 8)), _mm_set1_epi16(0x1001));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(out + d / 2), _mm_packus_epi16(pairs, pairs));
  }
}

struct EncodedRow {
  alignas(32) std::byte codes[kMaxHeadDim * 4];
  uint8_t scales[kMaxHeadDim / 16];
};

void encode(KvFormat format, const float* x, int64_t n, float scale, EncodedRow& row) {
  switch (format) {
    case KvFormat::kF32: std::memcpy(row.codes, x, static_cast<size_t>(n) * sizeof(float)); return;
    case KvFormat::kBF16: return encode_bf16(x, n, row.codes);
    case KvFormat::kFP8: return encode_fp8(x, n, scale, row.codes);
    case KvFormat::kNVFP4: return encode_blocks<true>(x, n, scale, row.codes, row.scales);
    case KvFormat::kE1M2: return encode_blocks<false>(x, n, scale, row.codes, row.scales);
  }
}

// Units of kBytes, page_tokens units apart.
template <size_t kBytes>
HB_ALWAYS_INLINE void scatter(const std::byte* from, int64_t units, int64_t page_tokens, std::byte* to) {
  for (int64_t u = 0; u < units; ++u)
    std::memcpy(to + static_cast<size_t>(u * page_tokens) * kBytes, from + static_cast<size_t>(u) * kBytes, kBytes);
}

void put_key(const KvLayout& layout, int64_t slot, const EncodedRow& row, std::byte* part) {
  const int64_t n = layout.head_dim, tokens = layout.page_tokens;
  switch (layout.format) {
    case KvFormat::kF32: return scatter<4>(row.codes, n, tokens, part + 4 * slot);
    case KvFormat::kBF16: return scatter<4>(row.codes, n / 2, tokens, part + 4 * slot);
    case KvFormat::kFP8: return scatter<2>(row.codes, n / 2, tokens, part + 2 * slot);
    case KvFormat::kNVFP4:
    case KvFormat::kE1M2: break;
  }
  scatter<1>(row.codes, n / 2, tokens, part + slot);
  scatter<1>(reinterpret_cast<const std::byte*>(row.scales), n / 16, tokens, part + kv_data_bytes(layout) + slot);
}

void put_value(const KvLayout& layout, int64_t slot, const EncodedRow& row, std::byte* part) {
  const int64_t bytes = kv_element_bytes(layout.format, layout.head_dim), blocks = layout.head_dim / 16;
  std::memcpy(part + slot * bytes, row.codes, static_cast<size_t>(bytes));
  if (kv_has_blocks(layout.format))
    std::memcpy(part + kv_data_bytes(layout) + slot * blocks, row.scales, static_cast<size_t>(blocks));
}

}  // namespace

void store_kv_avx2(const KvLayout& layout, int64_t slot, const float* key, float key_scale, const float* value,
                   float value_scale, std::byte* key_part, std::byte* value_part) {
  if (layout.head_dim % 16 != 0 || layout.head_dim > kMaxHeadDim)
    return ref::store_kv(layout, slot, key, key_scale, value, value_scale, key_part, value_part);
  EncodedRow row;
  encode(layout.format, key, layout.head_dim, key_scale, row);
  put_key(layout, slot, row, key_part);
  encode(layout.format, value, layout.head_dim, value_scale, row);
  put_value(layout, slot, row, value_part);
}

}  // namespace halfbyte::cpu
