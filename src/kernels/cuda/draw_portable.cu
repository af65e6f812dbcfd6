// The draw of draw.cu by a thread block a row, for devices without clusters or with less shared memory. The same token,
// entropy and temperature, bit for bit.
//
// Moves   slots x vocab x 4 bytes a row from L2 two to four times: logits are read anew for each pass over them.
#include "kernels/cuda/draw_values.cuh"
#include "kernels/cuda/portable.h"

namespace halfbyte::cuda {
namespace {

constexpr int kMostChunks = 96;  // 393,216 logits, as in draw.cu

struct DrawRowShared : PolicyShared {
  float most[kDrawWarps];
  int bad[kDrawWarps];
  int first[kDrawWarps];
  double chunk_z[kMostChunks], chunk_s[kMostChunks];
  uint64_t chunk_weight[kMostChunks];
  uint64_t warp_total[kDrawWarps];
  int token;
  float entropy, temperature;
};

// One row's logits, read from the slots whenever they are wanted.
struct RowLogits {
  const SlotView& view;
  int row, vocab;
  __device__ __forceinline__ float operator[](int i) const {
    return view.slot_counts != nullptr ? read_logit<true>(view, row, i) : read_logit<false>(view, row, i);
  }
  __device__ __forceinline__ int chunks() const { return (vocab + kChunkLogits - 1) / kChunkLogits; }
  __device__ __forceinline__ int chunk_end(int chunk) const { return min(vocab, (chunk + 1) * kChunkLogits); }
};

__device__ __forceinline__ int this_warp() {
  return static_cast<int>(threadIdx.x >> 5);
}
__device__ __forceinline__ int this_lane() {
  return static_cast<int>(threadIdx.x & 31);
}

// NaN when a logit is NaN or +infinity or all are -infinity.
__device__ float find_most(DrawRowShared& shared, const RowLogits& logits, float* plain) {
  float most = -INFINITY;
  int bad = 0;
  for (int i = static_cast<int>(threadIdx.x); i < logits.vocab; i += kDrawThreads) {
    const float y = logits[i];
    if (plain != nullptr) plain[i] = y;
    most = y > most ? y : most;
    bad |= y != y ? 1 : 0;
  }
  most = warp_reduce(most, [](float x, float y) { return fmaxf(x, y); });
  bad = warp_reduce(bad, [](int x, int y) { return x | y; });
  if (this_lane() == 0) {
    shared.most[this_warp()] = most;
    shared.bad[this_warp()] = bad;
  }
  __syncthreads();
  for (int w = 0; w < kDrawWarps; ++w) {
    most = fmaxf(most, shared.most[w]);
    bad |= shared.bad[w];
  }
  return bad != 0 || most == INFINITY || most == -INFINITY ? __builtin_nanf("") : most;
}

__device__ int greedy(DrawRowShared& shared, const RowLogits& logits, float most) {
  int first = 0x7FFFFFFF;
  for (int i = static_cast<int>(threadIdx.x); i < logits.vocab; i += kDrawThreads) {
    if (logits[i] == most) first = min(first, i);
  }
  first = warp_reduce(first, [](int x, int y) { return min(x, y); });
  if (this_lane() == 0) shared.first[this_warp()] = first;
  __syncthreads();
  for (int w = 0; w < kDrawWarps; ++w) first = min(first, shared.first[w]);
  return first;
}

// A warp a chunk; chunks are added by thread 0, which alone has the result.
__device__ float entropy_of(DrawRowShared& shared, const RowLogits& logits, float most) {
  for (int chunk = this_warp(); chunk < logits.chunks(); chunk += kDrawWarps) {
    const EntropySums sums = entropy_sums(logits, chunk * kChunkLogits, logits.chunk_end(chunk), most);
    if (this_lane() == 0) {
      shared.chunk_z[chunk] = sums.z;
      shared.chunk_s[chunk] = sums.s;
    }
  }
  __syncthreads();
  if (threadIdx.x != 0) return 0.0f;
  double z = 0, s = 0;
  for (int c = 0; c < logits.chunks(); ++c) {
    z += shared.chunk_z[c];
    s += shared.chunk_s[c];
  }
  return static_cast<float>(log64(z) - s / z);
}

// The temperature, in all threads; thread 0 leaves the entropy in `shared`.
__device__ float choose_temperature(DrawRowShared& shared, const RowLogits& logits, float most, const DrawRule& rule) {
  if (threadIdx.x == 0) shared.entropy = 0.0f;
  if (!rule.wants_entropy && !rule.by_entropy) return rule.temperature;
  const float entropy = entropy_of(shared, logits, most);
  if (threadIdx.x == 0) {
    shared.entropy = entropy;
    shared.temperature =
        rule.by_entropy ? shared.step().decide(static_cast<double>(entropy)).temperature : rule.temperature;
  }
  __syncthreads();
  return shared.temperature;
}

__device__ int drawn_token(DrawRowShared& shared, const RowLogits& logits, float most, const DrawRule& rule,
                           float temperature, uint64_t position) {
  const Weigher weigh{temperature, most / temperature, static_cast<double>(rule.min_p) * 2147483648.0};
  if (threadIdx.x == 0) shared.token = -1;
  for (int chunk = this_warp(); chunk < logits.chunks(); chunk += kDrawWarps) {
    uint64_t sum = 0;
    for (int i = chunk * kChunkLogits + this_lane(); i < logits.chunk_end(chunk); i += 32) sum += weigh(logits[i]);
    sum = warp_reduce(sum, [](uint64_t x, uint64_t y) { return x + y; });
    if (this_lane() == 0) shared.chunk_weight[chunk] = sum;
  }
  __syncthreads();
  uint64_t total = 0;
  for (int c = 0; c < logits.chunks(); ++c) total += shared.chunk_weight[c];
  uint64_t r = __umul64hi(philox_draw(rule.seed, rule.choice, position), total);
  int chunk = 0;
  while (chunk < logits.chunks() && r >= shared.chunk_weight[chunk]) r -= shared.chunk_weight[chunk++];
  if (chunk < logits.chunks()) find_token(shared, chunk, logits.vocab, 0, r, [&](int i) { return weigh(logits[i]); });
  __syncthreads();
  return shared.token;
}

__global__ void __launch_bounds__(kDrawThreads, 1) draw_row_kernel(const __grid_constant__ DrawRows a) {
  __shared__ DrawRowShared shared;
  const int row = blockIdx.x;
  const DrawRule& rule = a.rules[row];
  if (threadIdx.x == kDrawThreads - 1) prepare_policy(shared, rule);  // see draw.cu
  ptx::griddepcontrol_wait();
  const int source = a.rows != nullptr ? a.rows[row] : row;
  if (source < 0 || a.positions[source] < 0) return;
  const RowLogits logits{a.logits, row, a.vocab};
  const int position = a.positions[source];
  const float most =
      find_most(shared, logits, a.plain != nullptr ? a.plain + static_cast<size_t>(row) * a.vocab : nullptr);
  Drawn out;
  if (most == most) {
    const float temperature = choose_temperature(shared, logits, most, rule);
    const bool is_greedy = temperature <= kGreedyTemperature;
    out.token = is_greedy ? greedy(shared, logits, most)
                          : drawn_token(shared, logits, most, rule, temperature, static_cast<uint64_t>(position) + 1);
    out.entropy = shared.entropy;
    out.temperature = is_greedy ? 0.0f : temperature;
  }
  if (threadIdx.x == 0) report(a, shared, rule, row, source, position, out);
}

}  // namespace

Status draw_rows_portable(const DrawRows& args, int rows, Launch how) {
  return launch(draw_row_kernel, {dim3(static_cast<unsigned>(rows)), kDrawThreads}, how, "draw_rows", args);
}

}  // namespace halfbyte::cuda
