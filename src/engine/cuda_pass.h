// One pass of rows through a model on a CUDA device, and the draw of their tokens: the order of the kernels, their
// buffers, and the graphs made of them. Decode: up to 16 rows, a graph a shape (cuda_pass.cpp). Prompts: hundreds of rows,
// kernels one after another (cuda_prompt.cpp).
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/cuda_weights.h"
#include "kernels/cuda/ops.h"

namespace halfbyte {

// The device's cache: a page holds page_tokens positions of one sequence for every layer, [layers][K, V][kv_heads]
// [page_tokens][head_dim] in BF16 or FP8.
struct CudaKvShape {
  int64_t layers = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t page_tokens = 0;
  bool fp8 = false;

  size_t layer_bytes() const { return static_cast<size_t>(2 * kv_heads * page_tokens * head_dim) * (fp8 ? 1 : 2); }
  size_t page_bytes() const { return static_cast<size_t>(layers) * layer_bytes(); }
};

// A row as the host names it.
struct CudaRow {
  int32_t token = 0;
  int32_t position = 0;
  std::span<const int32_t> pages;  // of its sequence
};
// Consecutive rows of one sequence's prompt.
struct CudaSegment {
  std::span<const int32_t> tokens;
  int64_t position = 0;            // of the first
  std::span<const int32_t> pages;  // of the sequence
};
// A row whose logits are wanted.
struct CudaPick {
  int32_t row = 0;  // of the pass
  cuda::DrawRule rule;
};

// What a pass may have to hold.
struct CudaPassLimits {
  int64_t pages = 0;        // of the cache
  int64_t prompt_rows = 0;  // of one prompt pass; 0: no prompts
  int64_t sequences = 1;    // of one prompt pass
};

// Thread-compatible.
class CudaPass {
 public:
  // Takes all memory that it will need, but for the graphs and work space of decode shapes when they first run.
  static Result<std::unique_ptr<CudaPass>> create(std::shared_ptr<const CudaWeights> weights, const CudaKvShape& kv,
                                                  const CudaPassLimits& limits);
  ~CudaPass();

  // What a pass does beside the layers.
  struct Shape {
    int rows = 1;           // padded
    int picks = 0;          // padded; 0: no logits
    bool own_rows = false;  // each row is another sequence's: decode
    bool plain = false;     // keep the logits for the host
    bool advance = false;   // tokens and positions move on by themselves, for the next pass
    auto operator<=>(const Shape&) const = default;
  };

  // Runs rows (at most 16) and draws for the picks; drawn has one entry a pick. own_rows as in Shape.
  Status run(std::span<const CudaRow> rows, std::span<const CudaPick> picks, bool own_rows, bool plain,
             std::span<cuda::Drawn> drawn);
  // Runs prompt rows, at most prompt_rows of at most `sequences` sequences, rows counted through the segments.
  Status run_prompt(std::span<const CudaSegment> segments);
  // Draws for rows of the last run_prompt, at most 16 at a time.
  Status draw_prompt(std::span<const CudaPick> picks, bool plain, std::span<cuda::Drawn> drawn);
  int64_t prompt_rows() const { return limits_.prompt_rows; }
  // Logits of the last pick of that number, with plain; out: [vocab].
  Status logits(int pick, std::span<float> out);

  // A page's bytes from and to the host.
  Status read_page(int32_t page, std::span<std::byte> out);
  Status write_page(int32_t page, std::span<const std::byte> from);
  size_t page_bytes() const { return kv_shape_.page_bytes(); }

  // For measurements: rows as given, then `steps` decode passes that feed themselves; the device's clock in ns at the
  // end of each. All rows draw by `rule`. The cache holds whatever it holds.
  Status decode_alone(std::span<const CudaRow> rows, const cuda::DrawRule& rule, int steps,
                      std::vector<uint64_t>& stamps);
  Status fill_cache_randomly();
  const CudaWeights& weights() const { return *weights_; }

 private:
  struct Buffers;
  struct PromptBuffers;
  // Where the head finds the rows that it may pick from.
  struct HeadInput {
    cuda::SlotView y;  // of the last layer's `down`
    float* residual;
    int32_t* positions;
    int32_t* tokens;
  };
  CudaPass(std::shared_ptr<const CudaWeights> weights, const CudaKvShape& kv, const CudaPassLimits& limits);

  Status allocate();
  Status allocate_prompt();
  Result<Buffers*> buffers(int rows);
  Status place(std::span<const CudaRow> rows, std::span<const CudaPick> picks);
  Result<cudaGraphExec_t> graph(const Shape& shape);
  Status enqueue(const Shape& shape, Buffers& b, Buffers* head);
  Status enqueue_layer(size_t layer, const Shape& shape, Buffers& b);
  Status enqueue_head(const HeadInput& in, const Shape& shape, Buffers& head, cuda::Launch how);
  Status take_drawn(std::span<cuda::Drawn> drawn);
  cuda::AttentionRows attention_of(size_t layer) const;

  Status place_prompt(std::span<const CudaSegment> segments, int rows);
  Status enqueue_prompt_layer(size_t layer, std::span<const CudaSegment> segments, int rows);
  Status enqueue_prompt_attention(size_t layer, std::span<const CudaSegment> segments, int rows);
  HeadInput prompt_head() const;
  cuda::NormRows prompt_norm(const cuda::SlotView& y, const cuda::DeviceBuffer& weight) const;

  cuda::Launch how() const { return {stream_, true}; }       // inside a graph
  cuda::Launch in_turn() const { return {stream_, false}; }  // kernels begin when the one ahead has ended

  std::shared_ptr<const CudaWeights> weights_;
  CudaKvShape kv_shape_;
  CudaPassLimits limits_;
  int64_t table_stride_ = 0;
  cudaStream_t stream_ = nullptr;
  cuda::DeviceBuffer cache_;                          // [pages][page_bytes]
  cuda::DeviceBuffer inputs_;                         // CudaInputs
  cuda::DeviceBuffer tables_;                         // [16][table_stride]
  cuda::DeviceBuffer residual_;                       // [16][hidden]
  cuda::DeviceBuffer drawn_, plain_, stamps_, step_;  // [16] Drawn; [16][vocab]; ns; int32
  std::array<std::vector<int32_t>, cuda::kMaxRows> placed_tables_;
  std::map<int, std::unique_ptr<Buffers>> buffers_;
  std::unique_ptr<PromptBuffers> prompt_;
  std::map<Shape, cudaGraphExec_t> graphs_;
};

}  // namespace halfbyte
