// The decoder: hidden states and logits of a batch of rows, on the CPU. Every row's result is independent of the other
// rows, of how a prompt is cut into chunks, and of the thread count (docs/numerics.md 3 and 5).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "halfbyte/model.h"
#include "kernels/api.h"
#include "model/facts.h"
#include "model/kv_cache.h"
#include "model/row_source.h"
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
  // Rows that run together, decode rows before prompt rows.
  struct RowCounts {
    int64_t decode = 0, prompt = 0;
    int64_t all() const { return decode + prompt; }
  };
  // Consecutive ones of them that one kernel runs.
  struct Rows {
    RowRole role;
    int64_t first;
    int64_t count;
  };
  // Linears that round their input alike, and its rows in their kernels' form.
  struct RoundedInput {
    std::span<const Output> outputs;
    std::byte* decode_rows;
    std::byte* prompt_rows;
  };

  void place(std::span<const SequenceRows> batch);
  void run_layer(const LayerWeights& w, int64_t layer);
  void add_to_residual(int64_t row);
  const float* norm(const float* x, const std::vector<float>& weight, float* out) const;

  // y = linear(x) for linears that share their input x. `stage`: of making and rounding it.
  void linear(Stage stage, const RowCounts& rows, const RowSource& input, std::initializer_list<Output> outputs);
  std::vector<float> show_to_tap(int64_t rows, const RowSource& input, std::span<const Output> outputs);
  void place_rounded(const RowCounts& rows, std::span<const Output> outputs);
  void round_input(const RowCounts& rows, const RowSource& input);
  static void round_row(const PackedLinear& w, RowRole role, const float* row, float* scaled, std::byte* rounded,
                        int64_t index);
  void multiply(const Rows& rows, std::span<const Output> outputs, const std::byte* input);
  void multiply_range(const Output& output, const std::byte* input, const Rows& rows, int64_t begin, int64_t end);
  void rotate_and_append(const LayerWeights& w, int64_t layer);
  const AttentionKernels& attention_of(RowRole role) const {
    return role == RowRole::kPrompt ? kernels_.prompt_attention : kernels_.attention;
  }
  void plan_attention(std::span<const SequenceRows> batch);
  void attention(const LayerWeights& w, int64_t layer);

  const Model::Impl& model_;
  const VectorKernels& kernels_;
  ThreadPool& pool_;
  KvCache& cache_;
  DecoderLimits limits_;
  const LinearTap* tap_ = nullptr;  // of the running call
  RowCounts batch_;                 // of the last forward()
  StageClock* clock_ = nullptr;
  std::unique_ptr<Workspace> work_;
};

}  // namespace halfbyte
