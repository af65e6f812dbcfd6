// From a row of logits to a token: docs/numerics.md 4, step by step.
//
// Everything after the exponentials is integer arithmetic, so sums are exact in any order: the same seed and logits
// give the same token on every machine and in every batch.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "decode/logit_sums.h"
#include "decode/penalties.h"
#include "decode/reset.h"
#include "halfbyte/generate.h"

namespace halfbyte {

struct SampledToken {
  int32_t token = -1;
  float entropy = 0;                        // nats, raw logits; 0 unless asked for
  float temperature = 1;                    // the one used; 0 for greedy
  std::optional<TemperatureChoice> choice;  // with a policy
  std::optional<TokenLogprob> logprob;      // when logprobs >= 0
  std::vector<TokenLogprob> top;            // [logprobs], most likely first
};

// invalid_argument that names the field, its value and its range. `vocab` bounds the ids of logit_bias.
Status check_sampling(const SamplingParams& params, int64_t vocab);

// One thread's sampler: holds scratch of a vocabulary's size, so sampling allocates nothing (except the logprobs list
// where asked for). Thread-compatible.
class Sampler {
 public:
  // With a pool, the passes over a long row are split over its threads, with the same result: then sample() must not be
  // called from a body of that pool.
  explicit Sampler(int64_t vocab, const LogitFns& fns = best_logit_fns(), ThreadPool* pool = nullptr);

  // logits [vocab] are overwritten. `history` may be null when no penalty is set. `position`: number of tokens before
  // the drawn one, prompt included. `policy` chooses the temperature in place of params.temperature and moves on by
  // one token; null: none. invalid_data when a logit is NaN or infinite.
  Status sample(std::span<float> logits, const SamplingParams& params, const TokenHistory* history, uint64_t position,
                SampledToken& out, TemperatureState* policy = nullptr);

 private:
  struct Candidate {
    uint32_t weight;
    int32_t token;
  };

  template <class Body>
  int64_t for_chunks(int64_t count, const Body& body);
  LogitSums sums(std::span<const float> logits, float max);
  uint64_t fill_weights(std::span<const float> logits, float max, float temperature);
  void top_logprobs(std::span<const float> logits, int count, float max, const LogitSums& sums,
                    std::vector<TokenLogprob>& out);
  int32_t draw(std::span<const float> logits, float max, float temperature, const SamplingParams& params,
               uint64_t position);
  void keep_min_p(float min_p);
  template <class Enough>
  void keep_prefix(Enough enough);

  const LogitFns* fns_;
  ThreadPool* pool_;                   // null: one thread
  std::vector<ChunkSums> chunks_;      // [chunks of a row], as are:
  std::vector<uint64_t> totals_;       // sums of weights
  std::vector<uint32_t> weights_;      // [vocab]
  std::vector<Candidate> candidates_;  // tokens of non-zero weight, ascending id; capacity vocab
  std::vector<float> raw_;             // [vocab]: logits before bias and penalties, when log-probabilities need them
};

}  // namespace halfbyte
