#include "kernels/ref/attention.h"

#include <algorithm>
#include <cmath>

#include "base/exp32.h"
#include "formats/bf16.h"
#include "kernels/attention_layout.h"

namespace halfbyte::ref {
namespace {

// Element d of the key (or value) vector of one position.
class Vectors {
 public:
  Vectors(const KvView& kv, int64_t kv_head, bool values) : kv_(kv), offset_((values ? kv.kv_heads : 0) + kv_head) {}

  float operator()(int64_t position, int64_t d) const {
    const std::byte* page = kv_.pages[position / kv_.page_tokens];
    const int64_t at = (offset_ * kv_.page_tokens + position % kv_.page_tokens) * kv_.head_dim + d;
    return kv_.bf16 ? BF16::decode(reinterpret_cast<const uint16_t*>(page)[at])
                    : reinterpret_cast<const float*>(page)[at];
  }

 private:
  const KvView& kv_;
  int64_t offset_;
};

float fold8(float (&lanes)[8]) {
  for (int half = 4; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

// One cut [begin, end): fills p with the weights, o with the weighted sum; returns {m, l}.
struct CutStats {
  float m, l;
};
CutStats attend_cut(const float* q, const Vectors& keys, const Vectors& values, int64_t head_dim, int64_t begin,
                    int64_t end, float scale, float* p, float* o) {
  float m = -INFINITY;
  for (int64_t j = begin; j < end; ++j) {
    float lanes[8] = {};
    for (int64_t d = 0; d < head_dim; ++d) lanes[d % 8] = std::fma(q[d], keys(j, d), lanes[d % 8]);
    p[j - begin] = fold8(lanes) * scale;
    m = std::max(m, p[j - begin]);
  }
  float sums[8] = {};
  for (int64_t j = 0; j < end - begin; ++j) {
    p[j] = exp32(p[j] - m);
    sums[j % 8] += p[j];
  }
  std::fill_n(o, head_dim, 0.0f);
  for (int64_t j = begin; j < end; ++j) {
    for (int64_t d = 0; d < head_dim; ++d) o[d] = std::fma(p[j - begin], values(j, d), o[d]);
  }
  return {m, fold8(sums)};
}

}  // namespace

void attention(const float* q, const KvView& kv, int64_t kv_head, int64_t group, int64_t position, float scale,
               float* scratch, float* out) {
  const Vectors keys(kv, kv_head, /*values=*/false), values(kv, kv_head, /*values=*/true);
  float* p = scratch;
  float* o = scratch + kAttentionCut;
  for (int64_t g = 0; g < group; ++g, q += kv.head_dim, out += kv.head_dim) {
    float merged_m = 0.0f, merged_l = 0.0f;
    for (int64_t begin = 0; begin <= position; begin += kAttentionCut) {
      const int64_t end = std::min(begin + kAttentionCut, position + 1);
      if (begin == 0) {
        const auto [m, l] = attend_cut(q, keys, values, kv.head_dim, begin, end, scale, p, out);
        merged_m = m;
        merged_l = l;
        continue;
      }
      const auto [m, l] = attend_cut(q, keys, values, kv.head_dim, begin, end, scale, p, o);
      const float larger = std::max(merged_m, m);
      const float a = exp32(merged_m - larger), b = exp32(m - larger);
      merged_m = larger;
      merged_l = merged_l * a + l * b;
      for (int64_t d = 0; d < kv.head_dim; ++d) out[d] = out[d] * a + o[d] * b;
    }
    for (int64_t d = 0; d < kv.head_dim; ++d) out[d] = out[d] / merged_l;
  }
}

}  // namespace halfbyte::ref
