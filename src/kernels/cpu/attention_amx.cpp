// Attention of prompt rows on AMX over a BF16 cache: the tile order of docs/numerics.md 5.1.
//
// Bytes moved: keys and values of the positions seen, once for every kAmxQueryRows query rows. Keys lie in the cache as a
// tile instruction wants them (pairs of channels, a column a position) and are loaded from there; values are interleaved
// by pairs of positions once a cut. Queries and weights are two BF16 numbers each, so a product of 32 x 32 x 32 is 8 tile
// instructions of 16 cycles and 6 loads.
//
//   tmm0..3  sums: rows 0-15 x columns 0-15, 16-31; rows 16-31 x columns 0-15, 16-31
//   tmm4, 5  queries or weights: 16 rows x 32 channels or positions      tmm6, 7  keys or values: 16 pairs x 16 columns
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_vectors_avx512.h"
#include "kernels/cpu/linear_tiles_amx.h"
#include "kernels/cpu/tile_scratch.h"

namespace halfbyte::cpu {
namespace {

constexpr int64_t kBlockRows = 32;                         // query rows that go through a cut together
constexpr int64_t kCutSteps = kAttentionCut / 32;          // of 32 positions
constexpr int64_t kScoreStride = kAttentionCut + 16;       // floats: 16 rows lie in different cache sets
constexpr int64_t kWeightStride = 4 * kAttentionCut + 64;  // bytes: upper halves of a row's weights, then lower halves

// Words 2i and 2i + 1 of the result are word i (and i + 16) of two rows; a set bit 5 chooses the second row.
alignas(64) constexpr uint16_t kInterleaveLow[32] = {0, 32, 1, 33, 2,  34, 3,  35, 4,  36, 5,  37, 6,  38, 7,  39,
                                                     8, 40, 9, 41, 10, 42, 11, 43, 12, 44, 13, 45, 14, 46, 15, 47};
alignas(64) constexpr uint16_t kInterleaveHigh[32] = {16, 48, 17, 49, 18, 50, 19, 51, 20, 52, 21, 53, 22, 54, 23, 55,
                                                      24, 56, 25, 57, 26, 58, 27, 59, 28, 60, 29, 61, 30, 62, 31, 63};

// x as two BF16 numbers, the second the rest that the first leaves. The instruction takes a subnormal FP32 for a zero, as the
// contract does.
HB_ALWAYS_INLINE __m256i round_bf16(__m512 x) {
  return __builtin_bit_cast(__m256i, _mm512_cvtneps_pbh(x));
}
HB_ALWAYS_INLINE void store_halves(__m512 x, std::byte* first, std::byte* second) {
  const __m256i upper = round_bf16(x);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(first), upper);
  const __m512 value = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(upper), 16));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(second), round_bf16(_mm512_sub_ps(x, value)));
}
// The largest of lanes none of which is NaN.
HB_ALWAYS_INLINE float largest(__m512 v) {
  const __m256 a = _mm256_max_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
  __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  b = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

// sums [kA * 16 rows][32] at `out` (row stride in floats) = over `steps` steps of 32: both halves of the rows at `a` times
// the tiles that b(step, column of 16) gives: a pointer and the bytes from one row of it to the next.
template <int kA, class Operand>
HB_ALWAYS_INLINE void multiply_halves(const std::byte* a, int64_t a_stride, int64_t half_bytes, int64_t steps,
                                      const Operand& b, float* out, int64_t out_stride) {
  _tile_zero(0);
  _tile_zero(1);
  if (kA == 2) _tile_zero(2);
  if (kA == 2) _tile_zero(3);
  for (int64_t s = 0; s < steps; ++s, a += 64) {
    const auto left = b(s, 0), right = b(s, 1);
    _tile_loadd(6, left.data, left.stride);
    _tile_loadd(7, right.data, right.stride);
    for (int64_t half = 0; half < 2; ++half) {
      _tile_loadd(4, a + half * half_bytes, a_stride);
      if (kA == 2) _tile_loadd(5, a + half * half_bytes + 16 * a_stride, a_stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_dpbf16ps(1, 4, 7);
      if (kA == 2) _tile_dpbf16ps(2, 5, 6);
      if (kA == 2) _tile_dpbf16ps(3, 5, 7);
    }
  }
  _tile_stored(0, out, out_stride * 4);
  _tile_stored(1, out + 16, out_stride * 4);
  if (kA == 2) _tile_stored(2, out + 16 * out_stride, out_stride * 4);
  if (kA == 2) _tile_stored(3, out + 16 * out_stride + 16, out_stride * 4);
}

struct TileOperand {
  const std::byte* data;
  int64_t stride;
};

// One call's query rows and scratch; rows as in AttentionCall. The caller releases the tiles: a destructor that ran after
// exceptions would bring a symbol that the linker keeps for all machines.
class TileCall {
 public:
  HB_ALWAYS_INLINE TileCall(const KvView& kv, const AttentionRows& r)
      : head_(KvHead::make(kv, r.kv_head)),
        rows_(r),
        query_rows_(r.count * r.group),
        head_dim_(kv.layout.head_dim),
        q_stride_(head_dim_ * 4 + 64) {
    const int64_t strip_bytes = kAttentionCut * head_dim_ * 2, value_bytes = kAttentionCut * head_dim_ * 2;
    const int64_t sizes[] = {query_rows_ * q_stride_,
                             strip_bytes,
                             value_bytes,
                             kBlockRows * kScoreStride * 4,
                             kBlockRows * kWeightStride,
                             kBlockRows * head_dim_ * 4,
                             query_rows_ * head_dim_ * 4,
                             (2 * query_rows_ + 2 * kBlockRows) * 4};
    int64_t total = 0;
    for (const int64_t size : sizes) total += (size + 63) / 64 * 64;
    std::byte* at = tile_scratch(static_cast<size_t>(total));
    std::byte* places[8];
    for (int i = 0; i < 8; ++i) {
      places[i] = at;
      at += (sizes[i] + 63) / 64 * 64;
    }
    q_ = places[0];
    strips_ = places[1];
    values_ = places[2];
    scores_ = reinterpret_cast<float*>(places[3]);
    weights_ = places[4];
    cut_ = reinterpret_cast<float*>(places[5]);
    merged_ = reinterpret_cast<float*>(places[6]);
    merged_m_ = reinterpret_cast<float*>(places[7]);
    merged_l_ = merged_m_ + query_rows_;
    cut_m_ = merged_l_ + query_rows_;
    cut_l_ = cut_m_ + kBlockRows;
    for (int64_t i = 0; i < query_rows_; ++i) {
      const float* from = rows_.q + i / rows_.group * rows_.stride + i % rows_.group * head_dim_;
      std::byte* to = q_ + i * q_stride_;
      for (int64_t d = 0; d < head_dim_; d += 16)
        store_halves(_mm512_loadu_ps(from + d), to + 2 * d, to + 2 * (head_dim_ + d));
    }
    amx::settle(q_);
  }
  TileCall(const TileCall&) = delete;
  TileCall& operator=(const TileCall&) = delete;

  // Rows [first, query_rows) over the cut that begins at `begin`, which all of them see some of; then take(row, o, m, l).
  template <class Take>
  HB_ALWAYS_INLINE void attend_cut(int64_t begin, int64_t first, const Take& take) {
    const int64_t last =
        position_of(query_rows_ - 1) < begin + kAttentionCut ? position_of(query_rows_ - 1) : begin + kAttentionCut - 1;
    for (int64_t j = begin; j <= last; j += 16)
      strip_[(j - begin) / 16] = key_strip<KvFormat::kBF16>(head_, j, last, strips_ + (j - begin) * head_dim_ * 2);
    // A value that is not finite would reach rows that do not see it through a product with 0: then every row runs alone,
    // with zeros behind what it sees.
    if (interleave_values(begin, last)) {
      for (int64_t r = first; r < query_rows_; r += kBlockRows)
        block(begin, r, query_rows_ - r < kBlockRows ? query_rows_ - r : kBlockRows, take);
    } else {
      for (int64_t r = first; r < query_rows_; ++r) {
        interleave_values(begin, position_of(r) < last ? position_of(r) : last);
        block(begin, r, 1, take);
      }
    }
  }

  int64_t query_rows() const { return query_rows_; }
  int64_t head_dim() const { return head_dim_; }
  float* merged(int64_t r) const { return merged_ + r * head_dim_; }
  float* merged_m(int64_t r) const { return merged_m_ + r; }
  float* merged_l(int64_t r) const { return merged_l_ + r; }

 private:
  HB_ALWAYS_INLINE int64_t position_of(int64_t r) const { return rows_.position + r / rows_.group; }
  // Positions of the cut that row r sees.
  HB_ALWAYS_INLINE int64_t seen(int64_t r, int64_t begin) const {
    const int64_t all = position_of(r) + 1 - begin;
    return all < kAttentionCut ? all : kAttentionCut;
  }

  // Values of positions [begin, last], in steps of 32 with zeros behind, as operands [step][16 channels]: row i holds
  // positions 2i and 2i + 1. False if one is not finite.
  HB_ALWAYS_INLINE bool interleave_values(int64_t begin, int64_t last) {
    const __m512i low = _mm512_loadu_si512(kInterleaveLow), high = _mm512_loadu_si512(kInterleaveHigh);
    const __m512i exponent = _mm512_set1_epi32(0x7F807F80);
    const int64_t step_bytes = head_dim_ * 64;
    uint32_t damaged = 0;
    for (int64_t j = begin; j <= last || (j - begin) % 32 != 0; j += 2) {
      std::byte* out = values_ + (j - begin) / 32 * step_bytes + (j - begin) % 32 / 2 * 64;
      const std::byte* rows[2];
      for (int64_t i = 0; i < 2; ++i) {
        if (j + i <= last) rows[i] = head_.values(j + i) + ((j + i) & head_.mask) * head_dim_ * 2;
      }
      for (int64_t d = 0; d < head_dim_; d += 32, out += 2 * amx::kTileBytes) {
        const __m512i a = j <= last ? _mm512_loadu_si512(rows[0] + 2 * d) : _mm512_setzero_si512();
        const __m512i b = j + 1 <= last ? _mm512_loadu_si512(rows[1] + 2 * d) : _mm512_setzero_si512();
        damaged |= _mm512_cmpeq_epi16_mask(_mm512_and_si512(a, exponent), exponent) |
                   _mm512_cmpeq_epi16_mask(_mm512_and_si512(b, exponent), exponent);
        _mm512_storeu_si512(out, _mm512_permutex2var_epi16(a, low, b));
        _mm512_storeu_si512(out + amx::kTileBytes, _mm512_permutex2var_epi16(a, high, b));
      }
    }
    amx::settle(values_);
    return damaged == 0;
  }

  // Rows [r, r + count), at most kBlockRows: scores, weights, weighted values.
  template <class Take>
  HB_ALWAYS_INLINE void block(int64_t begin, int64_t r, int64_t count, const Take& take) {
    if (count != configured_) amx::configure(configured_ = count);
    const int64_t most = seen(r + count - 1, begin), steps = (most + 31) / 32;
    for (int64_t s = 0; s < steps; ++s) {
      // A last strip that nobody sees may have no page: any other gives numbers that are not used.
      const KeyStrip strip[2] = {strip_[2 * s], strip_[32 * s + 16 < most ? 2 * s + 1 : 2 * s]};
      const auto keys = [&](int64_t step, int64_t column) HB_INLINE_LAMBDA {
        return TileOperand{strip[column].data + step * 64 * strip[column].stride, strip[column].stride * 4};
      };
      multiply(count, q_ + r * q_stride_, q_stride_, head_dim_ * 2, head_dim_ / 32, keys, scores_ + 32 * s,
               kScoreStride);
    }
    amx::settle(scores_);
    for (int64_t i = 0; i < count; ++i) weigh(i, seen(r + i, begin), steps * 32);
    amx::settle(weights_);
    const int64_t step_bytes = head_dim_ * 64;
    for (int64_t d = 0; d < head_dim_; d += 32) {
      const auto values = [&](int64_t step, int64_t column) HB_INLINE_LAMBDA {
        return TileOperand{values_ + step * step_bytes + (d / 16 + column) * amx::kTileBytes, 64};
      };
      multiply(count, weights_, kWeightStride, 2 * kAttentionCut, steps, values, cut_ + d, head_dim_);
    }
    amx::settle(cut_);
    for (int64_t i = 0; i < count; ++i) {
      float* o = cut_ + i * head_dim_;
      // How many steps of zeros were added may decide the sign of a zero.
      for (int64_t d = 0; d < head_dim_; d += 16)
        _mm512_storeu_ps(o + d, _mm512_add_ps(_mm512_loadu_ps(o + d), _mm512_setzero_ps()));
      take(r + i, o, cut_m_[i], cut_l_[i]);
    }
  }

  template <class Operand>
  static HB_ALWAYS_INLINE void multiply(int64_t count, const std::byte* a, int64_t a_stride, int64_t half_bytes,
                                        int64_t steps, const Operand& b, float* out, int64_t out_stride) {
    if (count > 16) {
      multiply_halves<2>(a, a_stride, half_bytes, steps, b, out, out_stride);
    } else {
      multiply_halves<1>(a, a_stride, half_bytes, steps, b, out, out_stride);
    }
  }

  // Row i's sums -> weights as two halves, zeros in [count, padded); m and l.
  HB_ALWAYS_INLINE void weigh(int64_t i, int64_t count, int64_t padded) {
    float* s = scores_ + i * kScoreStride;
    std::byte* out = weights_ + i * kWeightStride;
    const __m512 scale = _mm512_set1_ps(rows_.scale);
    constexpr float kMinusInfinity = -__builtin_inff();
    for (int64_t j = count; j % 16 != 0; ++j) s[j] = kMinusInfinity;
    __m512 m = _mm512_set1_ps(kMinusInfinity);
    for (int64_t j = 0; j < count; j += 16) {
      const __m512 score = _mm512_mul_ps(_mm512_loadu_ps(s + j), scale);
      _mm512_storeu_ps(s + j, score);
      m = _mm512_max_ps(score, m);  // a NaN leaves m as it is
    }
    const float max = largest(m);
    __m256 sums = _mm256_setzero_ps();
    int64_t j = 0;
    for (; j < count; j += 16) {
      const __m512 e = exp32(_mm512_sub_ps(_mm512_loadu_ps(s + j), _mm512_set1_ps(max)));
      store_halves(e, out + 2 * j, out + 2 * (kAttentionCut + j));
      sums = _mm256_add_ps(sums, _mm512_castps512_ps256(e));
      sums = _mm256_add_ps(sums, _mm512_extractf32x8_ps(e, 1));
    }
    for (; j < padded; j += 16) store_halves(_mm512_setzero_ps(), out + 2 * j, out + 2 * (kAttentionCut + j));
    cut_m_[i] = max;
    cut_l_[i] = fold8(sums);
  }

  KvHead head_;
  AttentionRows rows_;
  int64_t query_rows_, head_dim_, q_stride_, configured_ = 0;
  std::byte *q_, *strips_, *values_, *weights_;
  float *scores_, *cut_, *merged_, *merged_m_, *merged_l_, *cut_m_, *cut_l_;
  KeyStrip strip_[2 * kCutSteps];
};

}  // namespace

void attention_rows_amx(const KvView& kv, const AttentionRows& rows, float* scratch) {
  if (!attention_has_tiles(kv.layout)) {
    AttentionRows part = rows;
    const int64_t most = attention_max_rows(rows.group);
    for (int64_t i = 0; i < rows.count; i += most) {
      part.q = rows.q + i * rows.stride;
      part.out = rows.out + i * rows.stride;
      part.position = rows.position + i;
      part.count = rows.count - i < most ? rows.count - i : most;
      attention_rows_avx512(kv, part, scratch);
    }
    return;
  }
  TileCall call(kv, rows);
  const int64_t last = rows.position + rows.count - 1, head_dim = call.head_dim();
  for (int64_t begin = 0; begin <= last; begin += kAttentionCut) {
    const int64_t before = begin > rows.position ? begin - rows.position : 0;  // queries that see nothing of it
    call.attend_cut(begin, before * rows.group, [&](int64_t r, const float* o, float m, float l) HB_INLINE_LAMBDA {
      if (begin == 0) {
        std::memcpy(call.merged(r), o, static_cast<size_t>(head_dim) * sizeof(float));
        *call.merged_m(r) = m;
        *call.merged_l(r) = l;
      } else {
        merge_cuts<Avx512>(m, l, o, head_dim, call.merged_m(r), call.merged_l(r), call.merged(r));
      }
    });
  }
  for (int64_t r = 0; r < call.query_rows(); ++r)
    divide_all<Avx512>(call.merged(r), *call.merged_l(r), head_dim,
                       rows.out + r / rows.group * rows.stride + r % rows.group * head_dim);
  _tile_release();
}

void attention_cut_amx(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial) {
  if (!attention_has_tiles(kv.layout)) return attention_cut_avx512(kv, rows, cut, scratch, partial);
  TileCall call(kv, rows);
  const int64_t head_dim = call.head_dim();
  call.attend_cut(cut * kAttentionCut, 0, [&](int64_t g, const float* o, float m, float l) HB_INLINE_LAMBDA {
    std::memcpy(partial + g * head_dim, o, static_cast<size_t>(head_dim) * sizeof(float));
    partial[rows.group * head_dim + g] = m;
    partial[rows.group * (head_dim + 1) + g] = l;
  });
  _tile_release();
}

}  // namespace halfbyte::cpu
