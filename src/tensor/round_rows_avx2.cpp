// Eight scale blocks at a time: their amax, their scales as one vector, then the codes block by block. A division per
// eight elements (the contract's true division) is the most expensive part: about a cycle an element.
// Compiled for AVX2: no inline function of another header may be called here that is not always inlined (tests/kernels/isa_symbols_test.cmake says why).
#include <immintrin.h>

#include <cstring>

#include "tensor/encode_e4m3_avx2.h"
#include "tensor/round_rows.h"

namespace halfbyte {
namespace {

constexpr int64_t kGroup = 8;  // scale blocks that are rounded together

__m256i magnitude_bits_of(__m256 x) {
  return _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7FFFFFFF));
}

int32_t max_lane(__m256i v) {
  __m128i m = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
  m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
  return _mm_cvtsi128_si32(m);
}

float widest(const float* x, int64_t n) {
  __m256i a = _mm256_setzero_si256(), b = a;
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    a = _mm256_max_epi32(a, magnitude_bits_of(_mm256_loadu_ps(x + i)));
    b = _mm256_max_epi32(b, magnitude_bits_of(_mm256_loadu_ps(x + i + 8)));
  }
  int32_t bits = max_lane(_mm256_max_epi32(a, b));
  for (; i < n; ++i) {
    int32_t own;
    std::memcpy(&own, x + i, sizeof own);
    own &= 0x7FFFFFFF;
    bits = own > bits ? own : bits;
  }
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

// amax of kGroup blocks of kBlock elements, as bits.
template <int kBlock>
__m256i group_amax(const float* x) {
  alignas(32) int32_t amax[kGroup];
  for (int64_t b = 0; b < kGroup; ++b) {
    __m256i m = _mm256_setzero_si256();
    for (int i = 0; i < kBlock; i += 8) m = _mm256_max_epi32(m, magnitude_bits_of(_mm256_loadu_ps(x + b * kBlock + i)));
    amax[b] = max_lane(m);
  }
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(amax));
}

// E2M1 codes of eight elements x / step, one a 32-bit lane; nearest, ties to even, saturating.
__m256i encode_e2m1(__m256 x, __m256 step) {
  const __m256i one = _mm256_set1_epi32(1);
  const __m256 v = _mm256_div_ps(x, step);
  const __m256i bits = magnitude_bits_of(v);
  // From 1 on: exponent and one fraction bit, rounded as integers. 1.0 is 254 there, and index 2.
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 22), one);
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x1FFFFF)), odd), 22);
  const __m256i large = _mm256_min_epi32(_mm256_sub_epi32(rounded, _mm256_set1_epi32(252)), _mm256_set1_epi32(7));
  // Below 1: multiples of a half. An FP32 of 2^22 has steps of a half.
  const __m256 shifter = _mm256_set1_ps(0x1p22f);
  const __m256i small = _mm256_sub_epi32(_mm256_castps_si256(_mm256_add_ps(_mm256_castsi256_ps(bits), shifter)),
                                         _mm256_castps_si256(shifter));
  const __m256i is_large = _mm256_cmpgt_epi32(bits, _mm256_set1_epi32(0x3F7FFFFF));
  const __m256i index = _mm256_blendv_epi8(small, large, is_large);
  // The sign, but for indices of 0: our writers make no -0.
  const __m256i sign = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(x), 28), _mm256_set1_epi32(8));
  return _mm256_or_si256(index, _mm256_andnot_si256(_mm256_cmpeq_epi32(index, _mm256_setzero_si256()), sign));
}

// 16 elements -> 8 bytes of codes, the even one in the low nibble.
uint64_t encode_16(const float* x, __m256 step) {
  const __m256i a = encode_e2m1(_mm256_loadu_ps(x), step), b = encode_e2m1(_mm256_loadu_ps(x + 8), step);
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xD8);   // 16 codes in order
  const __m256i pairs = _mm256_madd_epi16(words, _mm256_set1_epi32(16 << 16 | 1));  // even + 16 odd
  const __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(half, half)));
}

// The low byte of eight lanes.
uint64_t low_bytes(__m256i v) {
  const __m128i half = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  return static_cast<uint64_t>(_mm_cvtsi128_si64(_mm_packus_epi16(half, half)));
}

// NVFP4::weight_scale of eight blocks.
__m256i e4m3_weight_scales(__m256i amax_bits, __m256 divisor) {
  const __m256 v = _mm256_div_ps(_mm256_castsi256_ps(amax_bits), divisor);
  const __m256i bits = _mm256_castps_si256(v), one = _mm256_set1_epi32(1);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 20), one);
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFFF)), odd), 20);
  const __m256i normal = _mm256_sub_epi32(rounded, _mm256_set1_epi32(120 << 3));
  const __m256i subnormal = _mm256_cvtps_epi32(_mm256_mul_ps(v, _mm256_set1_ps(512.0f)));  // nearest even; 8 is 2^-6
  const __m256 is_small = _mm256_cmp_ps(v, _mm256_set1_ps(0x1p-6f), _CMP_LT_OQ);
  __m256i code = _mm256_blendv_epi8(normal, subnormal, _mm256_castps_si256(is_small));
  code = _mm256_min_epi32(code, _mm256_set1_epi32(0x7E));
  code = _mm256_max_epi32(code, one);  // a small block never loses its scale
  const __m256i zero = _mm256_cmpeq_epi32(amax_bits, _mm256_setzero_si256());
  return _mm256_blendv_epi8(code, _mm256_set1_epi32(0x38), zero);
}

__m256 decode_e4m3(__m256i code) {
  const __m256i normal = _mm256_add_epi32(_mm256_slli_epi32(code, 20), _mm256_set1_epi32(120 << 23));
  const __m256 subnormal = _mm256_mul_ps(_mm256_cvtepi32_ps(code), _mm256_set1_ps(0x1p-9f));
  const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(8), code);
  return _mm256_blendv_ps(_mm256_castsi256_ps(normal), subnormal, _mm256_castsi256_ps(is_small));
}

// kGroup whole blocks.
void nvfp4_group(const float* x, float alpha, uint8_t* codes, uint8_t* scales) {
  const __m256i code = e4m3_weight_scales(group_amax<16>(x), _mm256_set1_ps(6.0f * alpha));
  const uint64_t bytes = low_bytes(code);
  std::memcpy(scales, &bytes, sizeof bytes);
  alignas(32) float steps[kGroup];
  _mm256_store_ps(steps, _mm256_mul_ps(decode_e4m3(code), _mm256_set1_ps(alpha)));
  for (int64_t b = 0; b < kGroup; ++b) {
    const uint64_t block = steps[b] > 0.0f ? encode_16(x + 16 * b, _mm256_set1_ps(steps[b])) : 0;
    std::memcpy(codes + 8 * b, &block, sizeof block);
  }
}

// Exponents of eight blocks by the rule, as E8M0 codes; amax is normal or zero.
__m256i e8m0_scales(__m256i amax_bits, Mxfp4Rule rule) {
  const __m256i fraction = _mm256_and_si256(amax_bits, _mm256_set1_epi32(0x7FFFFF));
  const int32_t border = rule == Mxfp4Rule::kCeil ? 0x400000 : rule == Mxfp4Rule::kRound74 ? 0x5FFFFF : 0x7FFFFF;
  const __m256i up = _mm256_cmpgt_epi32(fraction, _mm256_set1_epi32(border));  // -1 where it rounds up
  __m256i code = _mm256_sub_epi32(_mm256_srli_epi32(amax_bits, 23), _mm256_set1_epi32(2));
  code = _mm256_sub_epi32(code, up);
  code = _mm256_max_epi32(_mm256_setzero_si256(), _mm256_min_epi32(code, _mm256_set1_epi32(254)));
  return _mm256_andnot_si256(_mm256_cmpeq_epi32(amax_bits, _mm256_setzero_si256()), code);
}

void mxfp4_group(const float* x, Mxfp4Rule rule, uint8_t* codes, uint8_t* scales) {
  const __m256i amax = group_amax<32>(x);
  const __m256i subnormal = _mm256_and_si256(_mm256_cmpgt_epi32(amax, _mm256_setzero_si256()),
                                             _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), amax));
  if (_mm256_movemask_epi8(subnormal) != 0) {
    kRowRoundersBaseline.mxfp4(x, 32 * kGroup, rule, codes, scales);
    return;
  }
  const __m256i code = e8m0_scales(amax, rule);
  const uint64_t bytes = low_bytes(code);
  std::memcpy(scales, &bytes, sizeof bytes);
  for (int64_t b = 0; b < kGroup; ++b) {
    const uint32_t step_bits = scales[b] == 0 ? 0x00400000u : static_cast<uint32_t>(scales[b]) << 23;  // 2^-127
    const __m256 step = _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int32_t>(step_bits)));
    const uint64_t halves[2] = {encode_16(x + 32 * b, step), encode_16(x + 32 * b + 16, step)};
    std::memcpy(codes + 16 * b, halves, sizeof halves);
  }
}

// Whole groups from x itself, the rest from a copy that is padded with zeros: they change no amax and get zero codes.
template <int kBlock, class RoundGroup>
void round_row(const float* x, int64_t k, uint8_t* codes, uint8_t* scales, const RoundGroup& round_group) {
  constexpr int64_t kElements = kGroup * kBlock;
  int64_t i = 0;
  for (; i + kElements <= k; i += kElements) round_group(x + i, codes + i / 2, scales + i / kBlock);
  if (i == k) return;
  float padded[kElements] = {};
  std::memcpy(padded, x + i, static_cast<size_t>(k - i) * sizeof(float));
  uint8_t last_codes[kElements / 2], last_scales[kGroup];
  round_group(padded, last_codes, last_scales);
  const auto blocks = static_cast<size_t>((k - i + kBlock - 1) / kBlock);
  std::memcpy(codes + i / 2, last_codes, blocks * kBlock / 2);
  std::memcpy(scales + i / kBlock, last_scales, blocks);
}

void nvfp4_weight(const float* x, int64_t k, float alpha, uint8_t* codes, uint8_t* scales) {
  round_row<16>(x, k, codes, scales,
                [alpha](const float* group, uint8_t* c, uint8_t* s) { nvfp4_group(group, alpha, c, s); });
}

void mxfp4(const float* x, int64_t k, Mxfp4Rule rule, uint8_t* codes, uint8_t* scales) {
  round_row<32>(x, k, codes, scales,
                [rule](const float* group, uint8_t* c, uint8_t* s) { mxfp4_group(group, rule, c, s); });
}

void fp8(const float* x, int64_t k, float scale, uint8_t* codes) {
  const __m256 divisor = _mm256_set1_ps(scale);
  int64_t i = 0;
  for (; i + 16 <= k; i += 16) {
    const __m256i words = _mm256_packus_epi32(encode_e4m3(_mm256_div_ps(_mm256_loadu_ps(x + i), divisor)),
                                              encode_e4m3(_mm256_div_ps(_mm256_loadu_ps(x + i + 8), divisor)));
    const __m256i in_order = _mm256_permute4x64_epi64(words, 0xD8);
    const __m128i bytes = _mm_packus_epi16(_mm256_castsi256_si128(in_order), _mm256_extracti128_si256(in_order, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i), bytes);
  }
  if (i < k) kRowRoundersBaseline.fp8(x + i, k - i, scale, codes + i);
}

// x is finite, so a NaN needs no care.
__m256i bf16_lanes(const float* x) {
  const __m256i bits = _mm256_castps_si256(_mm256_loadu_ps(x));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  return _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd), 16);
}

void bf16(const float* x, int64_t n, uint16_t* out) {
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m256i words = _mm256_packus_epi32(bf16_lanes(x + i), bf16_lanes(x + i + 8));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm256_permute4x64_epi64(words, 0xD8));
  }
  if (i < n) kRowRoundersBaseline.bf16(x + i, n - i, out + i);
}

}  // namespace

const RowRounders kRowRoundersAvx2 = {"avx2", widest, nvfp4_weight, mxfp4, fp8, bf16};

}  // namespace halfbyte
