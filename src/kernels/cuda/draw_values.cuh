// What draws by clusters (draw.cu) and by a thread block a row (draw_portable.cu) share.
#pragma once

#include "base/exp32.h"
#include "base/greedy.h"
#include "base/log64.h"
#include "base/rng.h"
#include "kernels/cuda/launch.cuh"

namespace halfbyte::cuda {

inline constexpr int kDrawThreads = 1024;
inline constexpr int kDrawWarps = kDrawThreads / 32;
inline constexpr int kChunkLogits = 4096;

template <class T, class Join>
__device__ __forceinline__ T warp_reduce(T v, Join join) {
#pragma unroll
  for (int mask = 16; mask > 0; mask /= 2) v = join(v, __shfl_xor_sync(~0u, v, mask));
  return v;
}

// A logit as its linear left it. kSlots: there may be more than one slot.
template <bool kSlots>
__device__ __forceinline__ float read_logit(const SlotView& logits, int row, int i) {
  if constexpr (kSlots) {
    float y[1];
    SlotReader<1>(logits, i).read(row, y);
    return y[0];
  } else {
    const float y = __ldcg(logits.partial + static_cast<size_t>(row) * logits.rows + i);
    return logits.bias != nullptr ? y + logits.bias[i] : y;
  }
}

__device__ __forceinline__ double fold_lanes(double v) {
#pragma unroll
  for (int half = 16; half > 0; half /= 2) v += __shfl_down_sync(~0u, v, half);
  return v;
}

// What a chunk of logits adds to Z = sum e and S = sum e d, where d = logit - most and e = exp(d): lane j has the logits j mod 32
// in ascending order, then the lanes are folded. All lanes of a warp call it; lane 0 has the result.
struct EntropySums {
  double z, s;
};
template <class Logits>
__device__ __forceinline__ EntropySums entropy_sums(const Logits& logits, int begin, int end, float most) {
  double z = 0, s = 0;
  for (int i = begin + static_cast<int>(threadIdx.x & 31); i < end; i += 32) {
    const float d = logits[i] - most;
    const float e = exp32(d);
    z += static_cast<double>(e);
    s += static_cast<double>(e) * static_cast<double>(e > 0.0f ? d : 0.0f);
  }
  return {fold_lanes(z), fold_lanes(s)};
}

struct Weigher {
  float temperature, top;
  double least;  // min-p: lighter tokens weigh nothing
  __device__ __forceinline__ uint32_t operator()(float logit) const {
    const float e = exp32(logit / temperature - top);
    const uint32_t w = e < 1.0f ? static_cast<uint32_t>(static_cast<int32_t>(e * 2147483648.0f)) : 0x80000000u;
    return static_cast<double>(w) < least ? 0u : w;
  }
};

// The token of `chunk` at which the running sum of weights first exceeds r, into shared.token; by all threads of the block.
// weigh: the weight of logit i of the block's `count`, whose ids begin at `first`.
template <class Shared, class Weigh>
__device__ void find_token(Shared& shared, int chunk, int count, int first, uint64_t r, const Weigh& weigh) {
  constexpr int kEach = kChunkLogits / kDrawThreads;
  const int warp = static_cast<int>(threadIdx.x >> 5), lane = static_cast<int>(threadIdx.x & 31);
  const int begin = chunk * kChunkLogits + static_cast<int>(threadIdx.x) * kEach;
  uint32_t w[kEach];
  uint64_t sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    w[i] = begin + i < count ? weigh(begin + i) : 0u;
    sum += w[i];
  }
  uint64_t before = sum;  // inclusive, then made exclusive
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const uint64_t other = __shfl_up_sync(~0u, before, step);
    if (lane >= step) before += other;
  }
  if (lane == 31) shared.warp_total[warp] = before;
  before -= sum;
  __syncthreads();
  for (int v = 0; v < warp; ++v) before += shared.warp_total[v];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (before <= r && r < before + w[i]) shared.token = first + begin + i;
    before += w[i];
  }
}

// Of the thread block that decides: what the policy knows ahead of the entropy, and its state. Raw, for shared memory has no
// constructors.
struct PolicyShared {
  alignas(TemperatureStep) unsigned char step_bytes[sizeof(TemperatureStep)];
  alignas(TemperatureSums) unsigned char sums_bytes[sizeof(TemperatureSums)];
  __device__ __forceinline__ TemperatureStep& step() { return *reinterpret_cast<TemperatureStep*>(step_bytes); }
  __device__ __forceinline__ TemperatureSums& sums() { return *reinterpret_cast<TemperatureSums*>(sums_bytes); }
};

// By a thread with nothing else to do: the window's sum takes as long as it has entropies.
__device__ __forceinline__ void prepare_policy(PolicyShared& shared, const DrawRule& rule) {
  if (!rule.by_entropy) return;
  if (rule.state == nullptr) {
    shared.step() = rule.policy;
    return;
  }
  shared.sums() = *rule.state;
  shared.step() = shared.sums().upcoming(rule.ring);
}

// What the next step needs, by one thread.
__device__ __forceinline__ void move_on(const DrawRows& a, PolicyShared& shared, const DrawRule& rule, int source,
                                        int position, const Drawn& drawn) {
  bool rests = drawn.token < 0 || position + 2 >= rule.limit;
  for (int i = 0; i < rule.stop_count; ++i) rests |= drawn.token == rule.stops[i];
  a.tokens[source] = drawn.token < 0 ? 0 : drawn.token;
  a.positions[source] = rests ? -1 : position + 1;
  if (rests || !rule.by_entropy || rule.state == nullptr) return;
  shared.sums().take(rule.ring, static_cast<double>(drawn.entropy));
  shared.sums().accept(drawn.token < rule.class_count ? rule.classes[drawn.token] : 0);
  *rule.state = shared.sums();
}

// The draw's result, by one thread.
__device__ __forceinline__ void report(const DrawRows& a, PolicyShared& shared, const DrawRule& rule, int row,
                                       int source, int position, const Drawn& drawn) {
  a.drawn[(position & (a.drawn_places - 1)) * a.drawn_stride + row] = drawn;
  if (a.advance) move_on(a, shared, rule, source, position, drawn);
  if (row == 0 && a.stamps != nullptr && a.stamps->count < a.stamps->capacity)
    a.stamps->ends[a.stamps->count++] = ptx::globaltimer();
}

}  // namespace halfbyte::cuda
