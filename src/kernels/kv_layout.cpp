#include "kernels/attention_layout.h"

namespace halfbyte {

size_t kv_part_bytes(const KvLayout& layout) {
  return static_cast<size_t>(kv_bytes_of_part(layout));
}

const char* kv_format_name(KvFormat format) {
  switch (format) {
    case KvFormat::kF32: return "f32";
    case KvFormat::kBF16: return "bf16";
    case KvFormat::kFP8: return "fp8";
    case KvFormat::kNVFP4: return "nvfp4";
    case KvFormat::kE1M2: return "e1m2";
  }
  return "?";
}

int64_t attention_partial_floats(int64_t group, int64_t head_dim) {
  return attention_partial(group, head_dim);
}
int64_t attention_scratch_floats(int64_t group, int64_t head_dim) {
  return AttentionScratch(group, head_dim).total;
}

}  // namespace halfbyte
