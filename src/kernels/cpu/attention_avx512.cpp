// attention_tiles.h on AVX-512.
#include "kernels/cpu/attention.h"
#include "kernels/cpu/attention_vectors_avx512.h"

namespace halfbyte::cpu {

void attention_rows_avx512(const KvView& kv, const AttentionRows& rows, float* scratch) {
  attention_rows<Avx512>(kv, rows, scratch);
}
void attention_cut_avx512(const KvView& kv, const AttentionRows& rows, int64_t cut, float* scratch, float* partial) {
  attention_cut<Avx512>(kv, rows, cut, scratch, partial);
}
void attention_merge_avx512(float* partials, int64_t cuts, int64_t group, int64_t head_dim, float* out) {
  attention_merge<Avx512>(partials, cuts, group, head_dim, out);
}

}  // namespace halfbyte::cpu
