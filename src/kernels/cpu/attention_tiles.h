// Attention on x86 vectors, bit-equal to ref/attention.cpp (docs/numerics.md 5); one copy for each instruction set V.
//
// Bytes moved: keys and values of the positions seen, once for every attention_rows(group) query rows: a decode step reads
// them once for all heads of the group. They are converted to FP32 a tile at a time, in the first-level cache; behind that
// nothing depends on the format.
//
// Scores: a lane is a position, so keys lie transposed in the cache and no sum crosses lanes. The contract's eight partial
// sums over channels are made one after the other and folded as they come. Values: a lane is a channel.
#pragma once

#include <immintrin.h>

#include <bit>
#include <cstring>

#include "base/exp32.h"
#include "kernels/attention_layout.h"
#include "kernels/cpu/fp4_layout.h"
#include "kernels/cpu/kv_codes.h"
#include "kernels/ref/attention.h"

namespace halfbyte::cpu {

// The keys and values of one head by position.
struct KvHead {
  const std::byte* const* pages;
  KvLayout layout;
  int64_t shift, mask, key_offset, value_offset, data_bytes;
  float key_scale, value_scale;

  static HB_ALWAYS_INLINE KvHead make(const KvView& kv, int64_t head) {
    const int64_t part = kv_bytes_of_part(kv.layout);
    return {kv.pages,
            kv.layout,
            __builtin_ctzll(static_cast<unsigned long long>(kv.layout.page_tokens)),
            kv.layout.page_tokens - 1,
            head * part,
            (kv.kv_heads + head) * part,
            kv_data_bytes(kv.layout),
            kv.key_scale,
            kv.value_scale};
  }
  HB_ALWAYS_INLINE const std::byte* keys(int64_t position) const { return pages[position >> shift] + key_offset; }
  HB_ALWAYS_INLINE const std::byte* values(int64_t position) const { return pages[position >> shift] + value_offset; }
};

// Keys of 16 positions as they are stored: units of a channel pair `stride` positions apart, then block scales likewise.
struct KeyStrip {
  const std::byte* data;
  const uint8_t* scales;
  int64_t stride;
};

// Bytes of a position's unit of channels.
HB_ALWAYS_INLINE constexpr int64_t key_unit_bytes(KvFormat format) {
  return kv_element_bytes(format, kv_unit(format));
}

// Pages of fewer than 16 positions: the strip is put together in `copy`. Places behind `last` stay as they were.
template <KvFormat kFormat>
HB_ALWAYS_INLINE KeyStrip gather_strip(const KvHead& head, int64_t position, int64_t last, std::byte* copy) {
  const int64_t unit_bytes = key_unit_bytes(kFormat);
  const int64_t units = head.layout.head_dim / kv_unit(kFormat), blocks = kv_blocks(head.layout.head_dim);
  std::byte* scales = copy + 16 * units * unit_bytes;
  for (int64_t i = 0; i < 16 && position + i <= last; ++i) {
    const std::byte* part = head.keys(position + i);
    const int64_t slot = (position + i) & head.mask;
    for (int64_t u = 0; u < units; ++u)
      std::memcpy(copy + (16 * u + i) * unit_bytes, part + (u * head.layout.page_tokens + slot) * unit_bytes,
                  static_cast<size_t>(unit_bytes));
    if (!kv_has_blocks(kFormat)) continue;
    for (int64_t b = 0; b < blocks; ++b)
      scales[16 * b + i] = part[head.data_bytes + b * head.layout.page_tokens + slot];
  }
  return {copy, reinterpret_cast<const uint8_t*>(scales), 16};
}

template <KvFormat kFormat>
HB_ALWAYS_INLINE KeyStrip key_strip(const KvHead& head, int64_t position, int64_t last, std::byte* copy) {
  if (head.layout.page_tokens < 16) return gather_strip<kFormat>(head, position, last, copy);
  const int64_t unit_bytes = key_unit_bytes(kFormat);
  const int64_t slot = position & head.mask;
  const std::byte* part = head.keys(position);
  return {part + slot * unit_bytes, reinterpret_cast<const uint8_t*>(part + head.data_bytes + slot),
          head.layout.page_tokens};
}

// Asks for keys, then values, a cache line a call, while others are multiplied: a sequence's pages lie apart, and a head's part
// of one is too short for the hardware to see a stream in it. Asked for all at once they would wait for each other, and the
// arithmetic for them.
template <KvFormat kFormat>
class LinesAhead {
 public:
  // Keys of [keys, keys_end), then values of [values, values_end).
  HB_ALWAYS_INLINE LinesAhead(const KvHead& head, int64_t keys, int64_t keys_end, int64_t values, int64_t values_end)
      : head_(head), keys_(keys), keys_end_(keys_end), values_(values), values_end_(values_end) {}

  HB_ALWAYS_INLINE void operator()() {
    if (lines_ == 0 && !next_run()) return;
    _mm_prefetch(reinterpret_cast<const char*>(at_), _MM_HINT_T1);
    at_ += step_;
    --lines_;
  }
  HB_ALWAYS_INLINE void all() {
    while (lines_ > 0 || next_run()) (*this)();
  }

 private:
  // Keys of 16 positions, or the values of one.
  HB_ALWAYS_INLINE bool next_run() {
    if (keys_ < keys_end_) {
      const int64_t unit_bytes = key_unit_bytes(kFormat), row = head_.layout.page_tokens * unit_bytes;
      const int64_t units = head_.layout.head_dim / kv_unit(kFormat);
      at_ = head_.keys(keys_) + (keys_ & head_.mask) * unit_bytes;
      step_ = row < 64 ? 64 : row;
      lines_ = (row * units + step_ - 1) / step_;
      keys_ += 16;
      return true;
    }
    if (values_ < values_end_) {
      const int64_t row = kv_element_bytes(kFormat, head_.layout.head_dim);
      at_ = head_.values(values_) + (values_ & head_.mask) * row;
      step_ = 64;
      lines_ = (row + 63) / 64;
      ++values_;
      return true;
    }
    return false;
  }

  const KvHead& head_;
  int64_t keys_, keys_end_, values_, values_end_;
  const std::byte* at_ = nullptr;
  int64_t step_ = 0, lines_ = 0;
};

// Tiles of 4 vectors of positions; a row of a tile is a channel (keys) or a position (values).
template <class V>
struct AttentionTiles {
  using Floats = typename V::Floats;
  static constexpr int64_t kWidth = V::kWidth;
  static constexpr int64_t kTile = 4 * kWidth;
  static constexpr int kLinesAStep = kWidth / 8;  // asked for beside a step of the products: enough for the next tile
  static_assert(kTile <= kAttentionTile && kAttentionCut % kTile == 0);

  // out[d][kTile] for 16 positions.
  template <KvFormat kFormat>
  static HB_ALWAYS_INLINE void convert_keys(const KeyStrip& keys, int64_t head_dim, float scale, float* out) {
    if constexpr (kFormat == KvFormat::kF32) {
      for (int64_t d = 0; d < head_dim; ++d)
        V::store16(out + d * kTile, V::load16(reinterpret_cast<const float*>(keys.data) + d * keys.stride));
    } else if constexpr (kFormat == KvFormat::kBF16) {
      for (int64_t d = 0; d < head_dim; d += 2) {
        const auto words = V::load_words(keys.data + d / 2 * keys.stride * 4);
        V::store16(out + d * kTile, V::low_bf16(words));
        V::store16(out + (d + 1) * kTile, V::high_bf16(words));
      }
    } else if constexpr (kFormat == KvFormat::kFP8) {
      Fp8Nans nans;
      for (int64_t d = 0; d < head_dim; d += 2) {
        const __m256i pairs = load256(keys.data + d / 2 * keys.stride * 2);
        nans.see(pairs);
        V::store16(out + d * kTile, V::times(V::from_f16(e4m3_low_to_f16(pairs)), scale * 256.0f));
        V::store16(out + (d + 1) * kTile, V::times(V::from_f16(e4m3_high_to_f16(pairs)), scale * 256.0f));
      }
      if (nans.any()) [[unlikely]] {
        mend_nan_keys(keys, head_dim, out);
      }
    } else {
      const __m128i table = load128(kFormat == KvFormat::kNVFP4 ? kDoubledE2M1 : kDoubledE1M2);
      for (int64_t block = 0; block < head_dim; block += kKvBlock) {
        alignas(64) float half_scales[16];
        const uint8_t* codes = keys.scales + block / kKvBlock * keys.stride;
        for (int i = 0; i < 16; ++i) half_scales[i] = kHalfE4M3.of[codes[i]];
        const auto scales = V::load16(half_scales);
        const int64_t end = block + kKvBlock < head_dim ? block + kKvBlock : head_dim;
        for (int64_t d = block; d < end; d += 2) {
          const __m128i pairs = load128(keys.data + d / 2 * keys.stride);
          store_scaled(out + d * kTile, V::times(V::from_i8(_mm_shuffle_epi8(table, low_nibbles(pairs))), scales),
                       scale);
          store_scaled(out + (d + 1) * kTile,
                       V::times(V::from_i8(_mm_shuffle_epi8(table, high_nibbles(pairs))), scales), scale);
        }
      }
    }
  }

  // out[0 .. head_dim rounded up to 16) of one position; zeros behind head_dim.
  template <KvFormat kFormat>
  static HB_ALWAYS_INLINE void convert_values(const KvHead& head, int64_t position, float* out) {
    const int64_t head_dim = head.layout.head_dim, slot = position & head.mask;
    const float scale = head.value_scale;
    const std::byte* part = head.values(position);
    const std::byte* row = part + kv_element_bytes(kFormat, slot * head_dim);
    const auto* scales = reinterpret_cast<const uint8_t*>(part + head.data_bytes + slot * kv_blocks(head_dim));
    const __m128i table = load128(kFormat == KvFormat::kNVFP4 ? kDoubledE2M1 : kDoubledE1M2);
    Fp8Nans nans;
    int64_t d = 0;
    for (; d + 16 <= head_dim; d += 16) {
      const std::byte* at = row + kv_element_bytes(kFormat, d);
      if constexpr (kFormat == KvFormat::kF32) {
        V::store16(out + d, V::load16(reinterpret_cast<const float*>(at)));
      } else if constexpr (kFormat == KvFormat::kBF16) {
        V::store16(out + d, V::from_bf16(load256(at)));
      } else if constexpr (kFormat == KvFormat::kFP8) {
        const __m128i codes = load128(at);
        nans.see(_mm256_castsi128_si256(codes));
        V::store16(out + d, V::times(V::from_f16(e4m3_to_f16(codes)), scale * 256.0f));
      } else {
        const __m128i codes = _mm_shuffle_epi8(table, nibbles_in_order(at));
        store_scaled(out + d, V::times(V::from_i8(codes), kHalfE4M3.of[scales[d / 16]]), scale);
      }
    }
    if (kFormat == KvFormat::kFP8 && nans.any()) [[unlikely]] {
      for (int64_t i = 0; i < d; ++i) {
        if ((static_cast<uint8_t>(row[i]) & 0x7F) == 0x7F) out[i] = __builtin_nanf("");
      }
    }
    if (d == head_dim) return;
    for (int64_t i = d; i < d + 16; ++i)
      out[i] = i < head_dim ? ref::read_value(head.layout, part, slot, i, scale) : 0.0f;
  }

  template <class Sixteen>
  static HB_ALWAYS_INLINE void store_scaled(float* out, Sixteen values, float scale) {
    V::store16(out, scale == 1.0f ? values : V::times(values, scale));
  }

  static void mend_nan_keys(const KeyStrip& keys, int64_t head_dim, float* out) {
    for (int64_t d = 0; d < head_dim; ++d) {
      for (int64_t i = 0; i < 16; ++i) {
        const auto code = static_cast<uint8_t>(keys.data[(d / 2 * keys.stride + i) * 2 + d % 2]);
        if ((code & 0x7F) == 0x7F) out[d * kTile + i] = __builtin_nanf("");
      }
    }
  }

  // Scores of kRows query rows and kVectors vectors of positions.
  template <int kRows, int kVectors, class Ahead>
  static HB_ALWAYS_INLINE void score_block(const float* q, int64_t q_stride, const float* keys, int64_t head_dim,
                                           float scale, float* out, Ahead& ahead) {
    // The fold 4, 2, 1 of partial sums 0 .. 7, taken in this order, adds each to a neighbour that waits for it.
    constexpr int64_t kOrder[8] = {0, 4, 2, 6, 1, 5, 3, 7};
    alignas(64) float waiting[3][kRows * kVectors * kWidth];
    Floats sums[kRows][kVectors];
    for (int step = 0; step < 8; ++step) {
      for (auto& row : sums) {
        for (Floats& s : row) s = V::zero();
      }
      for (int64_t d = kOrder[step]; d < head_dim; d += 8) {
        for (int i = 0; i < kLinesAStep; ++i) ahead();
        multiply_add<kRows, kVectors>(q + d, q_stride, keys + d * kTile, sums);
      }
      int level = 0;
      for (int bits = step; (bits & 1) != 0; bits >>= 1, ++level) {
        for (int i = 0; i < kRows * kVectors; ++i)
          sums[i / kVectors][i % kVectors] =
              V::add(V::load(waiting[level] + i * kWidth), sums[i / kVectors][i % kVectors]);
      }
      if (step == 7) break;
      for (int i = 0; i < kRows * kVectors; ++i)
        V::store(waiting[level] + i * kWidth, sums[i / kVectors][i % kVectors]);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v)
        V::store(out + r * kAttentionCut + v * kWidth, V::mul(sums[r][v], V::set(scale)));
    }
  }

  // sums[r][v] += factors[r] * vectors[v].
  template <int kRows, int kVectors>
  static HB_ALWAYS_INLINE void multiply_add(const float* factors, int64_t stride, const float* vectors,
                                            Floats (&sums)[kRows][kVectors]) {
    if constexpr (kRows < kVectors) {
      Floats f[kRows];
      for (int r = 0; r < kRows; ++r) f[r] = V::set(factors[r * stride]);
      for (int v = 0; v < kVectors; ++v) {
        const Floats vector = V::load(vectors + v * kWidth);
        for (int r = 0; r < kRows; ++r) sums[r][v] = V::fma(f[r], vector, sums[r][v]);
      }
    } else {
      Floats vector[kVectors];
      for (int v = 0; v < kVectors; ++v) vector[v] = V::load(vectors + v * kWidth);
      for (int r = 0; r < kRows; ++r) {
        const Floats f = V::set(factors[r * stride]);
        for (int v = 0; v < kVectors; ++v) sums[r][v] = V::fma(f, vector[v], sums[r][v]);
      }
    }
  }

  template <int kRows, class Ahead>
  static void score_rows(const float* q, int64_t q_stride, const float* keys, int64_t head_dim, float scale, float* out,
                         Ahead& ahead) {
    constexpr int kVectors = V::template vectors<kRows>();
    for (int v = 0; v < 4; v += kVectors)
      score_block<kRows, kVectors>(q, q_stride, keys + v * kWidth, head_dim, scale, out + v * kWidth, ahead);
  }

  // o[r][d] += sum of p[r][j] * values[j][d], j ascending; from zero if `first`.
  template <int kRows, int kVectors, class Ahead>
  static HB_ALWAYS_INLINE void value_block(const float* p, const float* values, int64_t stride, int64_t count,
                                           bool first, float* o, Ahead& ahead) {
    Floats sums[kRows][kVectors];
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) sums[r][v] = first ? V::zero() : V::load(o + r * stride + v * kWidth);
    }
    for (int64_t j = 0; j < count; ++j) {
      for (int i = 0; i < kLinesAStep; ++i) ahead();
      multiply_add<kRows, kVectors>(p + j, kAttentionCut, values + j * stride, sums);
    }
    for (int r = 0; r < kRows; ++r) {
      for (int v = 0; v < kVectors; ++v) V::store(o + r * stride + v * kWidth, sums[r][v]);
    }
  }

  template <int kRows, class Ahead>
  static void value_rows(const float* p, const float* values, int64_t stride, int64_t count, bool first, float* o,
                         Ahead& ahead) {
    constexpr int kMany = V::template vectors<kRows>() * (kRows == 1 ? 2 : 1), kFew = 16 / kWidth;
    int64_t d = 0;
    for (; d + kMany * kWidth <= stride; d += kMany * kWidth)
      value_block<kRows, kMany>(p, values + d, stride, count, first, o + d, ahead);
    for (; d < stride; d += kFew * kWidth) value_block<kRows, kFew>(p, values + d, stride, count, first, o + d, ahead);
  }
};

// A cut (cut_m, cut_l, cut_o) joins what is merged.
template <class V>
void merge_cuts(float cut_m, float cut_l, const float* cut_o, int64_t n, float* m, float* l, float* o) {
  const float larger = *m < cut_m ? cut_m : *m;
  const float a = halfbyte::exp32(*m - larger), b = halfbyte::exp32(cut_m - larger);
  *m = larger;
  *l = *l * a + cut_l * b;
  int64_t d = 0;
  for (; d + V::kWidth <= n; d += V::kWidth)
    V::store(o + d, V::add(V::mul(V::load(o + d), V::set(a)), V::mul(V::load(cut_o + d), V::set(b))));
  for (; d < n; ++d) o[d] = o[d] * a + cut_o[d] * b;
}

template <class V>
void divide_all(const float* o, float l, int64_t n, float* out) {
  int64_t d = 0;
  for (; d + V::kWidth <= n; d += V::kWidth) V::store(out + d, V::div(V::load(o + d), V::set(l)));
  for (; d < n; ++d) out[d] = o[d] / l;
}

// At most this many query rows share a load of a tile's vector.
inline constexpr int64_t kRowsAtOnce = 6;

// body(rows, first) over [first, end) in runs of at most kRowsAtOnce rows, as even as can be; rows is a constant.
template <class Body>
HB_ALWAYS_INLINE void for_row_runs(int64_t first, int64_t end, Body&& body) {
  while (first < end) {
    const int64_t runs = (end - first + kRowsAtOnce - 1) / kRowsAtOnce, rows = (end - first + runs - 1) / runs;
    switch (rows) {
      case 1: body(std::integral_constant<int, 1>{}, first); break;
      case 2: body(std::integral_constant<int, 2>{}, first); break;
      case 3: body(std::integral_constant<int, 3>{}, first); break;
      case 4: body(std::integral_constant<int, 4>{}, first); break;
      case 5: body(std::integral_constant<int, 5>{}, first); break;
      default: body(std::integral_constant<int, 6>{}, first); break;
    }
    first += rows;
  }
}

// One call's query rows and scratch. Row r is head r % group of the query at position + r / group.
template <class V, KvFormat kFormat>
struct AttentionCall {
  using Tiles = AttentionTiles<V>;
  KvHead head;
  AttentionRows rows;
  int64_t query_rows, stride;
  float *q, *scores, *cut, *merged, *tile;
  float *cut_m, *cut_l, *merged_m, *merged_l;
  std::byte* strip;

  HB_ALWAYS_INLINE AttentionCall(const KvView& kv, const AttentionRows& r, float* scratch)
      : head(KvHead::make(kv, r.kv_head)), rows(r), query_rows(r.count * r.group) {
    const AttentionScratch at(r.group, kv.layout.head_dim);
    // at.q leaves room to begin on a cache line.
    float* base = scratch + at.q - (reinterpret_cast<uintptr_t>(scratch + at.q) & 63) / sizeof(float);
    base -= at.q;
    stride = at.stride;
    q = base + at.q;
    scores = base + at.scores;
    cut = base + at.cut;
    merged = base + at.merged;
    cut_m = base + at.stats;
    cut_l = cut_m + at.rows;
    merged_m = cut_l + at.rows;
    merged_l = merged_m + at.rows;
    tile = base + at.tile;
    strip = reinterpret_cast<std::byte*>(base + at.strip);
    const int64_t head_dim = kv.layout.head_dim;
    for (int64_t i = 0; i < query_rows; ++i)
      std::memcpy(q + i * stride, rows.q + i / rows.group * rows.stride + i % rows.group * head_dim,
                  static_cast<size_t>(head_dim) * sizeof(float));
  }

  // Positions of the cut that begins at `begin` which query row r sees.
  HB_ALWAYS_INLINE int64_t seen(int64_t r, int64_t begin) const {
    const int64_t all = rows.position + r / rows.group + 1 - begin;
    return all < kAttentionCut ? all : kAttentionCut;
  }

  // Fills cut, cut_m and cut_l of rows [first, query_rows), which all see some of the cut.
  void attend_cut(int64_t begin, int64_t first) {
    const int64_t most = seen(query_rows - 1, begin), last = begin + most - 1, head_dim = head.layout.head_dim;
    // Pages of fewer positions than a strip: nothing is asked for.
    const int64_t end = head.layout.page_tokens < 16 ? begin : begin + most;
    const auto before = [end](int64_t position) HB_INLINE_LAMBDA { return position < end ? position : end; };
    LinesAhead<kFormat>(head, begin, before(begin + Tiles::kTile), 0, 0).all();
    for (int64_t j = 0; j < most; j += Tiles::kTile) {
      for (int64_t i = 0; i < Tiles::kTile && j + i < most; i += 16)
        Tiles::template convert_keys<kFormat>(key_strip<kFormat>(head, begin + j + i, last, strip), head_dim,
                                              head.key_scale, tile + i);
      const int64_t next = begin + j + Tiles::kTile;
      const int64_t values_end = next < begin + most ? begin : before(begin + Tiles::kTile);
      LinesAhead<kFormat> ahead(head, before(next), before(next + Tiles::kTile), begin, values_end);
      for_row_runs(first, query_rows, [&](auto count, int64_t r) HB_INLINE_LAMBDA {
        Tiles::template score_rows<count>(q + r * stride, stride, tile, head_dim, rows.scale,
                                          scores + r * kAttentionCut + j, ahead);
      });
    }
    for (int64_t r = first; r < query_rows; ++r)
      V::softmax(scores + r * kAttentionCut, seen(r, begin), cut_m + r, cut_l + r);
    for (int64_t j = 0; j < most; j += Tiles::kTile) {
      const int64_t positions = most - j < Tiles::kTile ? most - j : Tiles::kTile;
      for (int64_t i = 0; i < positions; ++i)
        Tiles::template convert_values<kFormat>(head, begin + j + i, tile + i * stride);
      const int64_t next = begin + j + Tiles::kTile;
      LinesAhead<kFormat> ahead(head, 0, 0, before(next), before(next + Tiles::kTile));
      for_row_runs(first, query_rows,
                   [&](auto count, int64_t r) HB_INLINE_LAMBDA { add_values<count>(begin, j, positions, r, ahead); });
    }
  }

  // The tile of values at j for kRows rows; a later row sees no fewer positions than the first.
  template <int kRows>
  void add_values(int64_t begin, int64_t j, int64_t positions, int64_t r, LinesAhead<kFormat>& ahead) {
    const auto of_tile = [&](int64_t row) HB_INLINE_LAMBDA {
      const int64_t left = seen(row, begin) - j;
      return left < 0 ? 0 : left < positions ? left : positions;
    };
    const int64_t common = of_tile(r);
    const float* p = scores + r * kAttentionCut + j;
    Tiles::template value_rows<kRows>(p, tile, stride, common, j == 0, cut + r * stride, ahead);
    for (int64_t i = 1; i < kRows; ++i) {
      const int64_t more = of_tile(r + i) - common;
      if (more > 0)
        Tiles::template value_rows<1>(p + i * kAttentionCut + common, tile + common * stride, stride, more,
                                      /*first=*/false, cut + (r + i) * stride, ahead);
    }
  }

  void merge_cut(int64_t first) {
    for (int64_t r = first; r < query_rows; ++r)
      merge_cuts<V>(cut_m[r], cut_l[r], cut + r * stride, stride, merged_m + r, merged_l + r, merged + r * stride);
  }

  void take_cut() {
    std::memcpy(merged, cut, static_cast<size_t>(query_rows * stride) * sizeof(float));
    std::memcpy(merged_m, cut_m, static_cast<size_t>(query_rows) * sizeof(float));
    std::memcpy(merged_l, cut_l, static_cast<size_t>(query_rows) * sizeof(float));
  }
};

template <class V, KvFormat kFormat>
void attend_rows(const KvView& kv, const AttentionRows& rows, float* scratch) {
  AttentionCall<V, kFormat> call(kv, rows, scratch);
  const int64_t last = rows.position + rows.count - 1;
  for (int64_t begin = 0; begin <= last; begin += kAttentionCut) {
    const int64_t before = begin > rows.position ? begin - rows.position : 0;  // queries that see nothing of it
    call.attend_cut(begin, before * rows.group);
    if (begin == 0) {
      call.take_cut();
    } else {
      call.merge_cut(before * rows.group);
    }
  }
  const int64_t head_dim = kv.layout.head_dim;
  for (int64_t r = 0; r < call.query_rows; ++r)
    divide_all<V>(call.merged + r * call.stride, call.merged_l[r], head_dim,
                  rows.out + r / rows.group * rows.stride + r % rows.group * head_dim);
}

template <class V, KvFormat kFormat>
void attend_one_cut(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial) {
  AttentionCall<V, kFormat> call(kv, rows, scratch);
  call.attend_cut(cut * kAttentionCut, 0);
  const int64_t head_dim = kv.layout.head_dim;
  for (int64_t g = 0; g < rows.group; ++g) {
    std::memcpy(partial + g * head_dim, call.cut + g * call.stride, static_cast<size_t>(head_dim) * sizeof(float));
    partial[rows.group * head_dim + g] = call.cut_m[g];
    partial[rows.group * (head_dim + 1) + g] = call.cut_l[g];
  }
}

// The members of an AttentionKernels.
template <class V>
void attention_rows(const KvView& kv, const AttentionRows& rows, float* scratch) {
  switch (kv.layout.format) {
    case KvFormat::kF32: return attend_rows<V, KvFormat::kF32>(kv, rows, scratch);
    case KvFormat::kBF16: return attend_rows<V, KvFormat::kBF16>(kv, rows, scratch);
    case KvFormat::kFP8: return attend_rows<V, KvFormat::kFP8>(kv, rows, scratch);
    case KvFormat::kNVFP4: return attend_rows<V, KvFormat::kNVFP4>(kv, rows, scratch);
    case KvFormat::kE1M2: return attend_rows<V, KvFormat::kE1M2>(kv, rows, scratch);
  }
}

template <class V>
void attention_cut(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial) {
  switch (kv.layout.format) {
    case KvFormat::kF32: return attend_one_cut<V, KvFormat::kF32>(kv, rows, cut, scratch, partial);
    case KvFormat::kBF16: return attend_one_cut<V, KvFormat::kBF16>(kv, rows, cut, scratch, partial);
    case KvFormat::kFP8: return attend_one_cut<V, KvFormat::kFP8>(kv, rows, cut, scratch, partial);
    case KvFormat::kNVFP4: return attend_one_cut<V, KvFormat::kNVFP4>(kv, rows, cut, scratch, partial);
    case KvFormat::kE1M2: return attend_one_cut<V, KvFormat::kE1M2>(kv, rows, cut, scratch, partial);
  }
}

template <class V>
void attention_merge(float* partials, int64_t cuts, int64_t group, int64_t head_dim, float* out) {
  const int64_t stride = attention_partial(group, head_dim);
  for (int64_t g = 0; g < group; ++g) {
    float* o = partials + g * head_dim;
    float m = partials[group * head_dim + g], l = partials[group * (head_dim + 1) + g];
    for (int64_t c = 1; c < cuts; ++c) {
      const float* cut = partials + c * stride;
      merge_cuts<V>(cut[group * head_dim + g], cut[group * (head_dim + 1) + g], cut + g * head_dim, head_dim, &m, &l,
                    o);
    }
    divide_all<V>(o, l, head_dim, out + g * head_dim);
  }
}

}  // namespace halfbyte::cpu
