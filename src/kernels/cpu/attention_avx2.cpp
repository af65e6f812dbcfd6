// Attention of one query row on AVX2, bit-equal to ref/attention.cpp (docs/numerics.md 5).
//
// Bytes moved: K and V of the positions seen, once for every two query heads of the group (they stay in the
// second-level cache for the others). Scores: eight lanes are the partial sums by d mod 8; four positions and two heads
// at a time. Values: a lane is one d; 32 of them and two heads stay in registers over a cut.
#include <immintrin.h>

#include "kernels/attention_layout.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/exp32_avx2.h"
#include "kernels/ref/attention.h"

namespace halfbyte::cpu {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

HB_ALWAYS_INLINE __m256 widen(const uint16_t* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
HB_ALWAYS_INLINE __m256 widen(const float* p) {
  return _mm256_loadu_ps(p);
}

// The key or value vectors of one KV head, by position.
template <class T>
struct Vectors {
  const std::byte* const* pages;
  int64_t page_shift, page_mask, head_offset, head_dim;

  static HB_ALWAYS_INLINE Vectors make(const KvView& kv, int64_t head) {
    const int shift = __builtin_ctzll(static_cast<unsigned long long>(kv.page_tokens));
    return {kv.pages, shift, kv.page_tokens - 1, head * kv.page_tokens * kv.head_dim, kv.head_dim};
  }
  HB_ALWAYS_INLINE const T* at(int64_t position) const {
    return reinterpret_cast<const T*>(pages[position >> page_shift]) + head_offset + (position & page_mask) * head_dim;
  }
};

// Four folds at once: lanes 4, 2, 1 of each vector.
HB_ALWAYS_INLINE __m128 fold8x4(const __m256 (&v)[4]) {
  __m128 a[4];
  for (int i = 0; i < 4; ++i) a[i] = _mm_add_ps(_mm256_castps256_ps128(v[i]), _mm256_extractf128_ps(v[i], 1));
  _MM_TRANSPOSE4_PS(a[0], a[1], a[2], a[3]);  // a[l]: lane l of the four
  return _mm_add_ps(_mm_add_ps(a[0], a[2]), _mm_add_ps(a[1], a[3]));
}

// scores[h][j] for kHeads heads, positions begin .. begin + count (count <= 256), padded to eight with -infinity.
template <class T, int kHeads>
HB_ALWAYS_INLINE void scores(const float* q, const Vectors<T>& keys, int64_t begin, int64_t count, float scale,
                             float* out) {
  const int64_t head_dim = keys.head_dim;
  const __m128 scales = _mm_set1_ps(scale);
  for (int64_t j = 0; j < count; j += 4) {
    const T* k[4];
    for (int64_t i = 0; i < 4; ++i) k[i] = keys.at(begin + (j + i < count ? j + i : count - 1));
    __m256 sums[kHeads][4];
    for (auto& head : sums) {
      for (__m256& s : head) s = _mm256_setzero_ps();
    }
    for (int64_t d = 0; d < head_dim; d += 8) {
      for (int i = 0; i < 4; ++i) {
        const __m256 key = widen(k[i] + d);
        for (int h = 0; h < kHeads; ++h) {
          sums[h][i] = _mm256_fmadd_ps(_mm256_loadu_ps(q + h * head_dim + d), key, sums[h][i]);
        }
      }
    }
    for (int h = 0; h < kHeads; ++h) _mm_storeu_ps(out + h * kAttentionCut + j, _mm_mul_ps(fold8x4(sums[h]), scales));
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int64_t j = count; j % 8 != 0; ++j) out[h * kAttentionCut + j] = kMinusInfinity;
  }
}

struct CutStats {
  float m, l;
};

// Scores -> weights in place. The padding gets weight 0 and adds nothing.
HB_ALWAYS_INLINE CutStats weights(float* p, int64_t count) {
  __m256 m = _mm256_set1_ps(kMinusInfinity);
  for (int64_t j = 0; j < count; j += 8) m = _mm256_max_ps(_mm256_loadu_ps(p + j), m);
  alignas(32) float lanes[8];
  _mm256_store_ps(lanes, m);
  float max = lanes[0];
  for (float v : lanes) max = v > max ? v : max;
  __m256 sums = _mm256_setzero_ps();
  for (int64_t j = 0; j < count; j += 8) {
    const __m256 e = exp32(_mm256_sub_ps(_mm256_loadu_ps(p + j), _mm256_set1_ps(max)));
    _mm256_storeu_ps(p + j, e);
    sums = _mm256_add_ps(sums, e);
  }
  return {max, fold8(sums)};
}

// o[h][d .. d + 8 kVectors) = sum over the cut of p[h][j] * v[j][d], j ascending.
template <class T, int kHeads, int kVectors>
HB_ALWAYS_INLINE void weighted_values(const float* p, const Vectors<T>& values, int64_t begin, int64_t count, int64_t d,
                                      float* o) {
  __m256 sums[kHeads][kVectors];
  for (auto& head : sums) {
    for (__m256& s : head) s = _mm256_setzero_ps();
  }
  for (int64_t j = 0; j < count; ++j) {
    const T* v = values.at(begin + j) + d;
    __m256 weight[kHeads];
    for (int h = 0; h < kHeads; ++h) weight[h] = _mm256_set1_ps(p[h * kAttentionCut + j]);
    for (int i = 0; i < kVectors; ++i) {
      const __m256 value = widen(v + 8 * i);
      for (int h = 0; h < kHeads; ++h) sums[h][i] = _mm256_fmadd_ps(weight[h], value, sums[h][i]);
    }
  }
  for (int h = 0; h < kHeads; ++h) {
    for (int i = 0; i < kVectors; ++i) _mm256_storeu_ps(o + h * values.head_dim + d + 8 * i, sums[h][i]);
  }
}

template <class T, int kHeads>
HB_ALWAYS_INLINE void all_weighted_values(const float* p, const Vectors<T>& values, int64_t begin, int64_t count,
                                          float* o) {
  int64_t d = 0;
  for (; d + 32 <= values.head_dim; d += 32) weighted_values<T, kHeads, 4>(p, values, begin, count, d, o);
  for (; d < values.head_dim; d += 8) weighted_values<T, kHeads, 1>(p, values, begin, count, d, o);
}

// What of one head is merged so far: out holds O.
HB_ALWAYS_INLINE void merge(CutStats cut, const float* o, int64_t head_dim, float* m, float* l, float* out) {
  const float larger = *m < cut.m ? cut.m : *m;
  alignas(32) float both[8];
  _mm256_store_ps(both, exp32(_mm256_setr_ps(*m - larger, cut.m - larger, 0, 0, 0, 0, 0, 0)));
  const float a = both[0], b = both[1];
  *m = larger;
  *l = *l * a + cut.l * b;
  for (int64_t d = 0; d < head_dim; d += 8) {
    const __m256 old = _mm256_mul_ps(_mm256_loadu_ps(out + d), _mm256_set1_ps(a));
    _mm256_storeu_ps(out + d, _mm256_add_ps(old, _mm256_mul_ps(_mm256_loadu_ps(o + d), _mm256_set1_ps(b))));
  }
}

template <class T>
void attend(const float* q, const KvView& kv, int64_t kv_head, int64_t group, int64_t position, float scale,
            float* scratch, float* out) {
  const auto keys = Vectors<T>::make(kv, kv_head), values = Vectors<T>::make(kv, kv.kv_heads + kv_head);
  const int64_t head_dim = kv.head_dim;
  float* p = scratch;                      // [group, kAttentionCut]
  float* o = p + group * kAttentionCut;    // [group, head_dim]
  float* merged_m = o + group * head_dim;  // [group]
  float* merged_l = merged_m + group;      // [group]
  for (int64_t begin = 0; begin <= position; begin += kAttentionCut) {
    const int64_t count = begin + kAttentionCut <= position + 1 ? kAttentionCut : position + 1 - begin;
    float* target = begin == 0 ? out : o;
    for (int64_t g = 0; g < group; g += 2) {
      const int64_t heads = group - g < 2 ? 1 : 2;
      float* weight = p + g * kAttentionCut;
      CutStats cut[2];
      if (heads == 2) {
        scores<T, 2>(q + g * head_dim, keys, begin, count, scale, weight);
        for (int h = 0; h < 2; ++h) cut[h] = weights(weight + h * kAttentionCut, count);
        all_weighted_values<T, 2>(weight, values, begin, count, target + g * head_dim);
      } else {
        scores<T, 1>(q + g * head_dim, keys, begin, count, scale, weight);
        cut[0] = weights(weight, count);
        all_weighted_values<T, 1>(weight, values, begin, count, target + g * head_dim);
      }
      for (int64_t h = g; h < g + heads; ++h) {
        if (begin == 0) {
          merged_m[h] = cut[h - g].m;
          merged_l[h] = cut[h - g].l;
        } else {
          merge(cut[h - g], o + h * head_dim, head_dim, merged_m + h, merged_l + h, out + h * head_dim);
        }
      }
    }
  }
  for (int64_t g = 0; g < group; ++g) {
    const __m256 l = _mm256_set1_ps(merged_l[g]);
    for (int64_t d = 0; d < head_dim; d += 8) {
      _mm256_storeu_ps(out + g * head_dim + d, _mm256_div_ps(_mm256_loadu_ps(out + g * head_dim + d), l));
    }
  }
}

}  // namespace

void attention_avx2(const float* q, const KvView& kv, int64_t kv_head, int64_t group, int64_t position, float scale,
                    float* scratch, float* out) {
  // Head sizes that are no multiple of 8 occur in no published model; the reference has the same bits.
  if (kv.head_dim % 8 != 0) return ref::attention(q, kv, kv_head, group, position, scale, scratch, out);
  if (kv.bf16) return attend<uint16_t>(q, kv, kv_head, group, position, scale, scratch, out);
  attend<float>(q, kv, kv_head, group, position, scale, scratch, out);
}

}  // namespace halfbyte::cpu
