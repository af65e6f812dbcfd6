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
  for (const LogitFns* form : logit_fns_here()) {
    if (form->name == kernels) return *form;
  }
  return best_logit_fns();
}

namespace {

LogitSums finish(double z, double s) {
  const double log_z = log64(z);
  return {log_z, log_z - s / z};
}

}  // namespace

LogitSums fold_chunks(std::span<const ChunkSums> chunks) {
  double z = 0, s = 0;
  for (const ChunkSums& chunk : chunks) {
    z += chunk.z;
    s += chunk.s;
  }
  return finish(z, s);
}

LogitSums LogitFns::sums(const float* logits, int64_t count, float max) const {
  double z = 0, s = 0;
  for (int64_t begin = 0; begin < count; begin += kLogitChunk) {
    const ChunkSums chunk = chunk_sums(logits + begin, std::min(kLogitChunk, count - begin), max);
    z += chunk.z;
    s += chunk.s;
  }
  return finish(z, s);
}

}  // namespace halfbyte
