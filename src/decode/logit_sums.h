// The passes over a row of logits that every token pays for: maximum, log-sum-exp with entropy, and draw weights.
// Orders of sums: docs/numerics.md 4. One source (logit_sums.cpp) is compiled for the baseline, AVX2 and AVX-512; all give
// the same bits; which runs goes with the kernels that were chosen.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace halfbyte {

// Of the raw logits at temperature 1.
struct LogitSums {
  double log_z = 0;    // log sum exp(l - max)
  double entropy = 0;  // nats
};

// Sums are taken in chunks of this many logits and folded in order, so chunks may be summed on several threads.
inline constexpr int64_t kLogitChunk = 4096;

struct ChunkSums {
  double z = 0, s = 0;  // sum of e, sum of e * (l - max), e = exp(l - max)

  void add(const ChunkSums& next);  // the chunk behind those that are in it
  LogitSums finish() const;
};

struct LogitFns {
  std::string_view name;  // "baseline", "avx2", "avx512"
  // The largest logit. NaN when a logit is NaN or +infinity, or when all are -infinity (one that is banned).
  float (*finite_max)(const float* logits, int64_t count);
  // At most kLogitChunk logits.
  ChunkSums (*chunk_sums)(const float* logits, int64_t count, float max);
  // weights[i] = uint32(exp32(logits[i] / temperature - max / temperature) * 2^31); returns their exact sum.
  uint64_t (*weights)(const float* logits, int64_t count, float max, float temperature, uint32_t* weights);

  LogitSums sums(const float* logits, int64_t count, float max) const;
};

// Every form that this CPU runs, the best last.
std::span<const LogitFns* const> logit_fns_here();
inline const LogitFns& best_logit_fns() {
  return *logit_fns_here().back();
}
// The form that goes with a set of kernels: "ref" the baseline, "avxvnni" that of "avx2", another set its own form or,
// where it has none or this CPU does not run it, the best here.
const LogitFns& logit_fns(std::string_view kernels);

// (l - max) - log Z, nats.
inline float token_logprob(float logit, float max, const LogitSums& sums) {
  return static_cast<float>(static_cast<double>(logit - max) - sums.log_z);
}

}  // namespace halfbyte
