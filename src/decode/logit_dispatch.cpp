#include <algorithm>
#include <array>

#include "base/cpu_features.h"
#include "base/log64.h"
#include "decode/logit_sums_tables.h"

namespace halfbyte {

std::span<const LogitFns* const> logit_fns_here() {
#if defined(__x86_64__)
  static constexpr std::array<const LogitFns*, 3> kForms{&kLogitFnsBaseline, &kLogitFnsAvx2, &kLogitFnsAvx512};
  static const size_t count = [] {
    const CpuFeatures& cpu = cpu_features();
    if (!cpu.avx2) return 1;
    return cpu.avx512f && cpu.avx512dq && cpu.avx512bw && cpu.avx512vl ? 3 : 2;
  }();
#else
  static constexpr std::array<const LogitFns*, 1> kForms{&kLogitFnsBaseline};
  static constexpr size_t count = 1;
#endif
  return {kForms.data(), count};
}

const LogitFns& logit_fns(std::string_view kernels) {
  if (kernels == "ref") return kLogitFnsBaseline;
  if (kernels == "avxvnni") kernels = "avx2";  // nothing to gain from its one instruction
  for (const LogitFns* form : logit_fns_here()) {
    if (form->name == kernels) return *form;
  }
  return best_logit_fns();
}

void ChunkSums::add(const ChunkSums& next) {
  z += next.z;
  s += next.s;
}

LogitSums ChunkSums::finish() const {
  const double log_z = log64(z);
  return {log_z, log_z - s / z};
}

LogitSums LogitFns::sums(const float* logits, int64_t count, float max) const {
  ChunkSums total;
  for (int64_t begin = 0; begin < count; begin += kLogitChunk)
    total.add(chunk_sums(logits + begin, std::min(kLogitChunk, count - begin), max));
  return total.finish();
}

}  // namespace halfbyte
