#include "kernels/ref/attention.h"

#include <algorithm>
#include <cmath>

#include "base/exp32.h"
#include "formats/bf16.h"
#include "kernels/attention_layout.h"
#include "kernels/ref/fold.h"

namespace halfbyte::ref {
namespace {

// The keys and values of one head by position.
class Head {
 public:
  Head(const KvView& kv, int64_t kv_head) : kv_(kv), head_(kv_head), part_(kv_part_bytes(kv.layout)) {}

  float key(int64_t position, int64_t d) const {
    return read_key(kv_.layout, part(position, head_), position % kv_.layout.page_tokens, d, kv_.key_scale);
  }
  float value(int64_t position, int64_t d) const {
    return read_value(kv_.layout, part(position, kv_.kv_heads + head_), position % kv_.layout.page_tokens, d,
                      kv_.value_scale);
  }

 private:
  const std::byte* part(int64_t position, int64_t index) const {
    return kv_.pages[position / kv_.layout.page_tokens] + static_cast<size_t>(index) * part_;
  }
  const KvView& kv_;
  int64_t head_;
  size_t part_;
};

// One cut [begin, end) of one query head: p gets the weights, o the weighted sum.
struct CutStats {
  float m, l;
};
CutStats attend_cut(const float* q, const Head& head, int64_t head_dim, int64_t begin, int64_t end, float scale,
                    float* p, float* o) {
  float m = -INFINITY;
  for (int64_t j = begin; j < end; ++j) {
    float lanes[8] = {};
    for (int64_t d = 0; d < head_dim; ++d) lanes[d % 8] = std::fma(q[d], head.key(j, d), lanes[d % 8]);
    p[j - begin] = fold(lanes) * scale;
    m = std::max(m, p[j - begin]);
  }
  float sums[8] = {};
  for (int64_t j = 0; j < end - begin; ++j) {
    p[j] = exp32(p[j] - m);
    sums[j % 8] += p[j];
  }
  std::fill_n(o, head_dim, 0.0f);
  for (int64_t j = begin; j < end; ++j) {
    for (int64_t d = 0; d < head_dim; ++d) o[d] = std::fma(p[j - begin], head.value(j, d), o[d]);
  }
  return {m, fold(sums)};
}

// The same in the tile order (docs/numerics.md 5.1).
float flush(float v) {
  return magnitude(v) < 0x1p-126f ? std::copysign(0.0f, v) : v;
}

// acc plus, for each of the two BF16 halves of x, the products with y of 32 consecutive elements: even and odd ones apart.
template <class Y>
float add_tile_step(float acc, const float* x, const Y& y) {
  float halves[2][32];
  for (int i = 0; i < 32; ++i) {
    halves[0][i] = BF16::round(flush(x[i]));
    halves[1][i] = BF16::round(flush(x[i] - halves[0][i]));
  }
  for (const auto& half : halves) {
    float sums[2] = {0.0f, 0.0f};
    for (int i = 0; i < 32; ++i) sums[i % 2] = flush(std::fma(flush(half[i]), flush(y(i)), sums[i % 2]));
    acc = flush(acc + flush(sums[0] + sums[1]));
  }
  return acc;
}

CutStats attend_cut_in_tiles(const float* q, const Head& head, int64_t head_dim, int64_t begin, int64_t end,
                             float scale, float* p, float* o) {
  float m = -INFINITY;
  for (int64_t j = begin; j < end; ++j) {
    float score = 0.0f;
    for (int64_t d = 0; d < head_dim; d += 32)
      score = add_tile_step(score, q + d, [&](int i) { return head.key(j, d + i); });
    p[j - begin] = score * scale;
    m = std::max(m, p[j - begin]);
  }
  float sums[8] = {};
  for (int64_t j = 0; j < end - begin; ++j) {
    p[j] = exp32(p[j] - m);
    sums[j % 8] += p[j];
  }
  std::fill(p + (end - begin), p + kAttentionCut, 0.0f);
  for (int64_t d = 0; d < head_dim; ++d) {
    float sum = 0.0f;
    for (int64_t j = begin; j < end; j += 32)
      sum = add_tile_step(sum, p + (j - begin), [&](int i) { return j + i < end ? head.value(j + i, d) : 0.0f; });
    o[d] = sum + 0.0f;  // -0 becomes +0
  }
  return {m, fold(sums)};
}

using AttendCut = CutStats (*)(const float* q, const Head& head, int64_t head_dim, int64_t begin, int64_t end,
                               float scale, float* p, float* o);

// What a head has merged so far: O, M, L.
struct Merged {
  float* o;
  float m, l;

  void add(CutStats cut, const float* cut_o, int64_t head_dim) {
    const float larger = std::max(m, cut.m);
    const float a = exp32(m - larger), b = exp32(cut.m - larger);
    m = larger;
    l = l * a + cut.l * b;
    for (int64_t d = 0; d < head_dim; ++d) o[d] = o[d] * a + cut_o[d] * b;
  }
};

void rows_by(AttendCut attend, const KvView& kv, const AttentionRows& rows, float* scratch) {
  const int64_t head_dim = kv.layout.head_dim;
  const Head head(kv, rows.kv_head);
  float *p = scratch, *cut_o = scratch + kAttentionCut;
  for (int64_t i = 0; i < rows.count; ++i) {
    const int64_t end = rows.position + i + 1;
    for (int64_t g = 0; g < rows.group; ++g) {
      const int64_t at = i * rows.stride + g * head_dim;
      const float* q = rows.q + at;
      float* out = rows.out + at;
      const CutStats first = attend(q, head, head_dim, 0, std::min(end, kAttentionCut), rows.scale, p, out);
      Merged merged{out, first.m, first.l};
      for (int64_t begin = kAttentionCut; begin < end; begin += kAttentionCut) {
        const CutStats cut =
            attend(q, head, head_dim, begin, std::min(end, begin + kAttentionCut), rows.scale, p, cut_o);
        merged.add(cut, cut_o, head_dim);
      }
      for (int64_t d = 0; d < head_dim; ++d) out[d] = out[d] / merged.l;
    }
  }
}

void cut_by(AttendCut attend, const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch,
            float* partial) {
  const int64_t head_dim = kv.layout.head_dim, begin = cut * kAttentionCut;
  const int64_t end = std::min(begin + kAttentionCut, rows.position + 1);
  const Head head(kv, rows.kv_head);
  float *m = partial + rows.group * head_dim, *l = m + rows.group;
  for (int64_t g = 0; g < rows.group; ++g) {
    const CutStats stats =
        attend(rows.q + g * head_dim, head, head_dim, begin, end, rows.scale, scratch, partial + g * head_dim);
    m[g] = stats.m;
    l[g] = stats.l;
  }
}

}  // namespace

void attention_rows(const KvView& kv, const AttentionRows& rows, float* scratch) {
  rows_by(&attend_cut, kv, rows, scratch);
}
void attention_cut(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial) {
  cut_by(&attend_cut, kv, rows, cut, scratch, partial);
}

void attention_rows_in_tiles(const KvView& kv, const AttentionRows& rows, float* scratch) {
  rows_by(attention_has_tiles(kv.layout) ? &attend_cut_in_tiles : &attend_cut, kv, rows, scratch);
}
void attention_cut_in_tiles(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial) {
  cut_by(attention_has_tiles(kv.layout) ? &attend_cut_in_tiles : &attend_cut, kv, rows, cut, scratch, partial);
}

void attention_merge(float* partials, int64_t cuts, int64_t group, int64_t head_dim, float* out) {
  const int64_t stride = attention_partial(group, head_dim);
  for (int64_t g = 0; g < group; ++g) {
    const auto stats = [&](int64_t cut) {
      const float* m = partials + cut * stride + group * head_dim;
      return CutStats{m[g], m[group + g]};
    };
    Merged merged{partials + g * head_dim, stats(0).m, stats(0).l};
    for (int64_t cut = 1; cut < cuts; ++cut) merged.add(stats(cut), partials + cut * stride + g * head_dim, head_dim);
    for (int64_t d = 0; d < head_dim; ++d) out[g * head_dim + d] = merged.o[d] / merged.l;
  }
}

}  // namespace halfbyte::ref
