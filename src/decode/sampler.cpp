#include "decode/sampler.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/greedy.h"
#include "base/rng.h"
#include "decode/marker_penalty.h"

namespace halfbyte {
namespace {

__extension__ using Uint128 = unsigned __int128;

// Rows shorter than this are not split over threads: waking them takes longer than the row.
constexpr int64_t kSplitFrom = 16384;

int64_t chunks_of(int64_t logits) {
  return (logits + kLogitChunk - 1) / kLogitChunk;
}

Status bad(const char* field, double value, const char* expected) {
  char number[32];
  std::snprintf(number, sizeof(number), "%.7g", value);  // the digits of a float, and no more
  return invalid_argument(std::string(field) + " is " + number + ", expected " + expected);
}

// The lowest id of the largest logit.
int32_t argmax(std::span<const float> logits, float max) {
  return static_cast<int32_t>(std::find(logits.begin(), logits.end(), max) - logits.begin());
}

}  // namespace

Status check_sampling(const SamplingParams& p, int64_t vocab) {
  const auto in = [](float x, float low, float high) { return x >= low && x <= high; };  // false for NaN
  if (!in(p.temperature, 0.0f, 100.0f)) return bad("temperature", p.temperature, "0 to 100");
  HB_TRY(check_policy(p.policy));
  if (p.top_k < 0) return bad("top_k", p.top_k, "0 (off) or more");
  if (!in(p.top_p, 0.0f, 1.0f) || p.top_p == 0.0f) return bad("top_p", p.top_p, "more than 0, at most 1");
  if (!in(p.min_p, 0.0f, 1.0f)) return bad("min_p", p.min_p, "0 to 1");
  if (!in(p.repetition_penalty, 1e-3f, 1e3f)) return bad("repetition_penalty", p.repetition_penalty, "0.001 to 1000");
  if (!in(p.frequency_penalty, -2.0f, 2.0f)) return bad("frequency_penalty", p.frequency_penalty, "-2 to 2");
  if (!in(p.presence_penalty, -2.0f, 2.0f)) return bad("presence_penalty", p.presence_penalty, "-2 to 2");
  if (!in(p.marker_penalty, 0.0f, 100.0f)) return bad("marker_penalty", p.marker_penalty, "0 (off) to 100");
  HB_TRY(check_marker_tokens(p, vocab));
  if (p.logprobs < -1 || p.logprobs > 20) return bad("logprobs", p.logprobs, "-1 (none) to 20");
  for (const auto& [token, bias] : p.logit_bias) {
    if (token < 0 || token >= vocab)
      return invalid_argument("logit_bias names token " + std::to_string(token) + ", expected 0 to " +
                              std::to_string(vocab - 1));
    if (!in(bias, -1e4f, 1e4f)) return bad("logit_bias", bias, "-10000 to 10000");
  }
  return {};
}

Sampler::Sampler(int64_t vocab, const LogitFns& fns, ThreadPool* pool)
    : fns_(&fns),
      pool_(vocab >= kSplitFrom ? pool : nullptr),
      chunks_(static_cast<size_t>(chunks_of(vocab))),
      totals_(chunks_.size()),
      weights_(static_cast<size_t>(vocab)) {
  candidates_.reserve(static_cast<size_t>(vocab));
  raw_.resize(static_cast<size_t>(vocab));
}

// body(chunk, its first logit, its logits) for all chunks of a row, on all threads; returns how many there are.
template <class Body>
int64_t Sampler::for_chunks(int64_t count, const Body& body) {
  const int64_t chunks = chunks_of(count);
  pool_->parallel_for(chunks, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t first = c * kLogitChunk;
      body(static_cast<size_t>(c), first, std::min(kLogitChunk, count - first));
    }
  });
  return chunks;
}

LogitSums Sampler::sums(std::span<const float> logits, float max) {
  const auto count = static_cast<int64_t>(logits.size());
  if (pool_ == nullptr) return fns_->sums(logits.data(), count, max);
  const int64_t chunks = for_chunks(
      count, [&](size_t c, int64_t first, int64_t n) { chunks_[c] = fns_->chunk_sums(logits.data() + first, n, max); });
  ChunkSums total;
  for (int64_t c = 0; c < chunks; ++c) total.add(chunks_[static_cast<size_t>(c)]);
  return total.finish();
}

uint64_t Sampler::fill_weights(std::span<const float> logits, float max, float temperature) {
  const auto count = static_cast<int64_t>(logits.size());
  if (pool_ == nullptr) return fns_->weights(logits.data(), count, max, temperature, weights_.data());
  const int64_t chunks = for_chunks(count, [&](size_t c, int64_t first, int64_t n) {
    totals_[c] = fns_->weights(logits.data() + first, n, max, temperature, weights_.data() + first);
  });
  return std::accumulate(totals_.begin(), totals_.begin() + chunks, uint64_t{0});
}

Status Sampler::sample(std::span<float> logits, const SamplingParams& params, const TokenHistory* history,
                       uint64_t position, SampledToken& out, TemperatureState* policy) {
  const auto count = static_cast<int64_t>(logits.size());
  float max = fns_->finite_max(logits.data(), count);
  if (std::isnan(max))
    return invalid_data("the model gave a logit that is NaN or infinite at position " + std::to_string(position) +
                        "; its weights are broken or overflow in this plan");
  const float raw_max = max;
  LogitSums sums;
  const bool wants_logprobs = params.logprobs >= 0;
  const bool wants_entropy = params.entropy || policy != nullptr;
  if (wants_entropy || wants_logprobs) sums = this->sums(logits, max);
  out.entropy = wants_entropy ? static_cast<float>(sums.entropy) : 0.0f;
  float temperature = params.temperature;
  out.choice.reset();
  if (policy != nullptr) {
    out.choice = policy->next(out.entropy);  // the float that is reported: the choice can be checked from the outside
    temperature = out.choice->temperature;
  }
  out.top.clear();
  if (wants_logprobs) top_logprobs(logits, params.logprobs, max, sums, out.top);

  const bool penalises = history != nullptr && has_penalties(params);
  const bool changes_logits = !params.logit_bias.empty() || has_marker_penalty(params) || penalises;
  std::span<const float> raw = logits;
  if (changes_logits) {
    if (wants_logprobs) {
      std::copy(logits.begin(), logits.end(), raw_.begin());
      raw = raw_;
    }
    for (const auto& [token, bias] : params.logit_bias) logits[static_cast<size_t>(token)] += bias;
    if (has_marker_penalty(params)) apply_marker_penalty(params, logits);
    if (penalises) apply_penalties(params, *history, logits);
    max = fns_->finite_max(logits.data(), count);
    if (std::isnan(max))
      return invalid_data("logit bias or penalties made a logit infinite at position " + std::to_string(position));
  }

  if (temperature <= kGreedyTemperature) {
    out.temperature = 0.0f;
    out.token = argmax(logits, max);
  } else {
    out.temperature = temperature;
    out.token = draw(logits, max, temperature, params, position);
  }
  out.logprob.reset();
  if (wants_logprobs)
    out.logprob = TokenLogprob{out.token, token_logprob(raw[static_cast<size_t>(out.token)], raw_max, sums)};
  return {};
}

// Min-p, top-k, top-p, then the draw; all in integers.
int32_t Sampler::draw(std::span<const float> logits, float max, float temperature, const SamplingParams& params,
                      uint64_t position) {
  const auto count = static_cast<int64_t>(logits.size());
  uint64_t total = fill_weights(logits, max, temperature);
  const uint64_t random = philox_draw(params.seed, params.choice, position);
  const auto threshold = [&] { return static_cast<uint64_t>((Uint128{random} * total) >> 64); };

  const bool truncates = params.min_p > 0.0f || params.top_k > 0 || params.top_p < 1.0f;
  if (!truncates) {
    uint64_t r = threshold();
    int32_t token = 0;
    while (weights_[static_cast<size_t>(token)] <= r) r -= weights_[static_cast<size_t>(token++)];
    return token;
  }

  candidates_.clear();
  for (int64_t i = 0; i < count; ++i)
    if (const uint32_t w = weights_[static_cast<size_t>(i)]; w != 0)
      candidates_.push_back({w, static_cast<int32_t>(i)});
  const auto sum = [&] {
    uint64_t s = 0;
    for (const Candidate& c : candidates_) s += c.weight;
    return s;
  };
  keep_min_p(params.min_p);
  if (params.top_k > 0 && candidates_.size() > static_cast<size_t>(params.top_k))
    keep_prefix([k = static_cast<uint64_t>(params.top_k)](uint64_t tokens, uint64_t) { return tokens >= k; });
  total = sum();
  if (params.top_p < 1.0f) {
    const double target = static_cast<double>(params.top_p) * static_cast<double>(total);
    keep_prefix(
        [target](uint64_t tokens, uint64_t weight) { return tokens > 0 && static_cast<double>(weight) >= target; });
    total = sum();
  }
  uint64_t r = threshold();
  size_t i = 0;
  while (candidates_[i].weight <= r) r -= candidates_[i++].weight;
  return candidates_[i].token;
}

void Sampler::keep_min_p(float min_p) {
  if (min_p <= 0.0f) return;
  uint32_t top = 0;
  for (const Candidate& c : candidates_) top = std::max(top, c.weight);
  const double least = static_cast<double>(min_p) * static_cast<double>(top);
  std::erase_if(candidates_, [least](const Candidate& c) { return static_cast<double>(c.weight) < least; });
}

// Keeps the shortest prefix, in order of falling weight and then rising id, for which enough(tokens, weight) holds.
// A radix search for the weight at which the prefix ends: no sort, three passes at most over what is left.
template <class Enough>
void Sampler::keep_prefix(Enough enough) {
  struct Bin {
    uint64_t tokens = 0, weight = 0;
  };
  constexpr int kBits = 11;
  std::array<Bin, (size_t{1} << kBits)> bins;
  uint64_t tokens = 0, weight = 0;  // of everything heavier than the current range
  uint64_t low = 0;                 // the range is [low, low + 2^(shift + kBits))
  for (int shift = 22; shift >= 0; shift -= kBits) {
    bins.fill({});
    for (const Candidate& c : candidates_) {
      const uint64_t offset = uint64_t{c.weight} - low;
      if (c.weight < low || (offset >> shift) >= bins.size()) continue;
      Bin& bin = bins[offset >> shift];
      ++bin.tokens;
      bin.weight += c.weight;
    }
    size_t b = bins.size() - 1;
    while (b > 0 && !enough(tokens + bins[b].tokens, weight + bins[b].weight)) {
      tokens += bins[b].tokens;
      weight += bins[b].weight;
      --b;
    }
    low += uint64_t{b} << shift;
  }
  // `low` is the last weight of the prefix: its tokens are taken by rising id until it is enough.
  bool done = false;
  std::erase_if(candidates_, [&](const Candidate& c) {
    if (c.weight != low) return c.weight < low;
    if (done) return true;
    ++tokens;
    weight += c.weight;
    done = enough(tokens, weight);
    return false;
  });
}

void Sampler::top_logprobs(std::span<const float> logits, int count, float max, const LogitSums& sums,
                           std::vector<TokenLogprob>& out) {
  // A sorted list of at most 20: nearly every logit fails the first comparison.
  const auto limit = std::min(static_cast<size_t>(count), logits.size());
  if (limit == 0) return;
  out.reserve(limit + 1);
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    if (out.size() == limit && !(logit > out.back().logprob)) continue;
    const auto place =
        std::upper_bound(out.begin(), out.end(), logit, [](float l, const TokenLogprob& t) { return l > t.logprob; });
    out.insert(place, {static_cast<int32_t>(i), logit});
    if (out.size() > limit) out.pop_back();
  }
  for (TokenLogprob& t : out) t.logprob = token_logprob(t.logprob, max, sums);
}

}  // namespace halfbyte
