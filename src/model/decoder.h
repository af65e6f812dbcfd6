// The decoder: hidden states and logits of a batch of rows, on the CPU. Every row's result is independent of the other
// rows, of how a prompt is cut into chunks, and of the thread count (docs/numerics.md 3 and 5).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "halfbyte/model.h"
#include "kernels/api.h"
#include "model/facts.h"
#include "model/kv_cache.h"
#include "model/stage_clock.h"
#include "model/weights.h"

namespace halfbyte {

// Consecutive positions of one sequence: these rows run, and see every earlier position in the pages.
struct SequenceRows {
  std::span<const int32_t> tokens;  // [rows]
  int64_t position = 0;             // of the first row
  std::span<const int32_t> pages;   // of the whole sequence, up to the last row at least
  RowRole role = RowRole::kPrompt;  // chooses the linears' kernels
};

// Sees the input rows of a linear [rows, k], FP32, before they are rounded.
using LinearTap = std::function<void(const std::string& linear, std::span<const float> x, int64_t rows, int64_t k)>;

struct DecoderLimits {
  int64_t max_rows = 0;       // rows in one forward()
  int64_t max_sequences = 0;  // sequences in one forward()
  int64_t cache_tokens = 0;   // positions that the cache holds
};

// Thread-compatible. Allocates everything it needs when it is made.
class Decoder {
 public:
  // `model`, `pool` and `cache` must outlive it.
  Decoder(const Model& model, ThreadPool& pool, KvCache& cache, const DecoderLimits& limits);
  ~Decoder();

  // Runs all layers over the rows of the batch, decode rows before prompt rows, in order: appends their keys and values
  // to the cache and leaves their hidden states for logits(). `tap` may be null.
  void forward(std::span<const SequenceRows> batch, const LinearTap* tap = nullptr);

  // Logits of rows of the last forward(), by their index in the batch; out: [rows.size(), vocab], rows.size() <=
  // max_rows.
  void logits(std::span<const int64_t> rows, std::span<float> out, const LinearTap* tap = nullptr);

  // From now on its stages' times are added to `clock`, which must outlive it; null: they are not measured.
  void measure(StageClock* clock) { clock_ = clock; }

  // Bytes that a decoder with these limits allocates.
  static uint64_t work_bytes(const ModelFacts& model, const DecoderLimits& limits, int threads);

 private:
  struct Workspace;
  struct Output {
    const PackedLinear& linear;
    float* y;  // [rows, linear.n]
  };

  void place(std::span<const SequenceRows> batch);
  void run_layer(const LayerWeights& w, int64_t layer);
  void norm(const float* x, const std::vector<float>& weight, int64_t rows, float* out);
  // Consecutive rows of the batch that one kernel runs.
  struct Rows {
    RowRole role;
    int64_t first;
    int64_t count;
  };

  // y = linear(x) for linears that share their input x [rows, k], of which the first `decode_rows` are decode rows.
  void linear(const float* x, int64_t rows, int64_t decode_rows, std::span<const Output> outputs);
  void linear_rows(const float* x, const Rows& rows, std::span<const Output> outputs);
  void round_input(const PackedLinear& linear, const float* x, const Rows& rows);
  void multiply(const Rows& rows, std::span<const Output> outputs);
  void multiply_range(const Output& output, const std::byte* input, const Rows& rows, int64_t begin, int64_t end);
  void rotate_and_append(const LayerWeights& w, int64_t layer);
  const AttentionKernels& attention_of(RowRole role) const {
    return role == RowRole::kPrompt ? kernels_.prompt_attention : kernels_.attention;
  }
  void plan_attention(std::span<const SequenceRows> batch);
  void attention(const LayerWeights& w, int64_t layer);
  void silu_mul();
  void add_to_residual();

  const Model::Impl& model_;
  const VectorKernels& kernels_;
  ThreadPool& pool_;
  KvCache& cache_;
  DecoderLimits limits_;
  const LinearTap* tap_ = nullptr;  // of the running call
  int64_t decode_rows_ = 0;         // of the batch
  StageClock* clock_ = nullptr;
  std::unique_ptr<Workspace> work_;
};

}  // namespace halfbyte
